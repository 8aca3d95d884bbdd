package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSlow decides which errors are worth another try.
func TestSlow(t *testing.T) {
	clusters := schema.GroupResource{Resource: "clusters"}
	etcdTimeout := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("writing Secret: %w", etcdTimeout), true},
		{apierrors.NewServerTimeout(clusters, "create", 1), true},
		{apierrors.NewTooManyRequests("too many", 1), true},
		{apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewForbidden(clusters, "member1", errors.New("no right")), false},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Cluster"}, "member1", nil), false},
		{errors.New("the cluster is already a member of another federation"), false},
		{context.Canceled, false},
		{nil, false},
	} {
		if got := Slow(test.err); got != test.want {
			t.Errorf("Slow(%v) = %v", test.err, got)
		}
	}
}
