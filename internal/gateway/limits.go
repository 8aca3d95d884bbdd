package gateway

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/limits"
)

// retryStreams is after how many seconds a client that has too many streams should try again.
const retryStreams = 10

// withLimits bounds the streams and the memory of each user. It follows authorization, so that nobody learns from it what exists, and flow
// control, so that requests that wait there hold nothing.
func (c *Config) withLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		owner := limits.OwnerFrom(ctx)
		if info, found := request.RequestInfoFrom(ctx); found && isLongRunning(r, info) {
			end, ok := c.streams.Open(owner)
			if !ok {
				streamsRefused.Inc()
				forward.WriteError(w, r, apierrors.NewTooManyRequests(fmt.Sprintf(
					"%s has %d watches and other streams open at this gateway, which is the limit for a user; close some of them", owner.Name, c.options.MaxStreamsPerUser), retryStreams))
				return
			}
			defer end()
		}
		grant := c.budget.Open(owner)
		defer grant.Close()
		next.ServeHTTP(w, r.WithContext(limits.WithGrant(ctx, grant)))
	})
}
