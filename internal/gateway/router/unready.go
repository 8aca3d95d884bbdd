package router

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unready is the error for a cell that has refused a request because of its user. Every cell grants access to the group of all forwarded
// requests; an API server that has just started may not have loaded that yet. The cell has changed nothing, so any request may be
// retried.
func unready(cell string) *apierrors.StatusError {
	status := apierrors.NewServiceUnavailable(cell + " is not ready yet; try again in a moment")
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}

// refusesUser reports whether an answer is a refusal by authorization. Refusals by admission have other messages.
func refusesUser(status *metav1.Status) bool {
	if status == nil || status.Code != http.StatusForbidden {
		return false
	}
	_, reason, found := strings.Cut(status.Message, ` is forbidden: User "`)
	return found && strings.Contains(reason, `" cannot `)
}
