package forward

import (
	"errors"
	"net"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestUnanswered shows who is told to try again: clients do that by themselves, and a write that was done must not be done twice.
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
				t.Errorf("told to try again: %v (%v)", again, err)
			}
			if err.ErrStatus.Code < 500 {
				t.Errorf("the code is %d", err.ErrStatus.Code)
			}
		})
	}
}
