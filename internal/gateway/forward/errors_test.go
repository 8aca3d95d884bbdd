package forward

import (
	"errors"
	"net"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestUnanswered checks which errors have a Retry-After: a write that may have been done must not be repeated.
func TestUnanswered(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	broken := errors.New("unexpected EOF")
	for _, test := range []struct {
		name   string
		method string
		err    error
		again  bool
	}{
		{"a read that broke off", http.MethodGet, broken, true},
		{"a write that never left", http.MethodPost, refused, true},
		{"a write that broke off", http.MethodPost, broken, false},
		{"a patch that broke off", http.MethodPatch, broken, false},
		{"a deletion that broke off", http.MethodDelete, broken, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Unanswered("cell-a", test.method, test.err)
			if _, again := apierrors.SuggestsClientDelay(err); again != test.again {
				t.Errorf("Retry-After: %v, want %v (%v)", again, test.again, err)
			}
			if err.ErrStatus.Code < 500 {
				t.Errorf("the code is %d", err.ErrStatus.Code)
			}
		})
	}
}
