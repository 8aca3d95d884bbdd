package bootstrap

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/fleet"
)

// Slow reports whether an error says that a server did not answer in time, as an API server does when its etcd does not.
func Slow(err error) bool {
	return fleet.Unreachable(err) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}
