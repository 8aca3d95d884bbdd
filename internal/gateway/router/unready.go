package router

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unready is what a client is told when a cell has refused a request because of its user. Cells are bound to serve the group that all
// forwarded requests have; an API server that was just started does not know that yet, and refuses everybody for a moment. Nothing was
// done, so that any request may be repeated.
func unready(cell string) *apierrors.StatusError {
	status := apierrors.NewServiceUnavailable(cell + " holds what you asked for and does not serve yet; it may just have been started")
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}

// refusesUser reports whether an answer says that a user may not do something. Admission, which may refuse as well, words it otherwise.
func refusesUser(status *metav1.Status) bool {
	if status == nil || status.Code != http.StatusForbidden {
		return false
	}
	_, reason, found := strings.Cut(status.Message, ` is forbidden: User "`)
	return found && strings.Contains(reason, `" cannot `)
}
