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
			var status apierrors.APIStatus
			if !errors.As(err, &status) || status.Status().Code < 500 {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestAccepted checks that a control plane which rejects the gateway is no refusal of the user, and that any request may be repeated then.
func TestAccepted(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		_, err := Accepted("cell-a", &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody}, nil)
		answer := Unanswered("cell-a", method, err)
		if _, again := apierrors.SuggestsClientDelay(answer); !again || !apierrors.IsServiceUnavailable(answer) {
			t.Errorf("%s: %v", method, answer)
		}
	}
	forbidden := &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody}
	if response, err := Accepted("cell-a", forbidden, nil); response != forbidden || err != nil {
		t.Errorf("an answer with 403 became %v, %v", response, err)
	}
}
