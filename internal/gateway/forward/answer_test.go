package forward_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// TestEndToEnd checks which headers reach a control plane: none about the connection, none about the origin.
func TestEndToEnd(t *testing.T) {
	sent := http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"kubectl"}, "Kubectl-Command": {"get"},
		"Connection": {"close, x-hop"}, "X-Hop": {"1"}, "Keep-Alive": {"1"}, "Transfer-Encoding": {"chunked"}, "Upgrade": {"h2c"}, "Te": {"trailers"},
		"Trailer": {"X"}, "Proxy-Authorization": {"x"}, "Proxy-Connection": {"close"}, "Content-Length": {"7"},
		"Forwarded": {"for=10.0.0.1"}, "X-Forwarded-For": {"10.0.0.1"}, "X-Forwarded-Host": {"evil"}, "X-Forwarded-Proto": {"http"}, "X-Real-Ip": {"10.0.0.1"},
	}
	got := slices.Sorted(maps.Keys(forward.EndToEnd(sent)))
	if want := []string{"Accept", "Content-Type", "Kubectl-Command", "User-Agent"}; !slices.Equal(got, want) {
		t.Errorf("got headers %q, want %q", got, want)
	}
}

// TestWarningsAreKept checks that a warning of the gateway is not replaced by one of the control plane.
func TestWarningsAreKept(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Warning", "of the gateway")
	w.Header().Set("Date", "of the gateway")
	forward.Answer(w, &http.Response{
		StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{"Warning": {"of the cell", "another"}, "Date": {"of the cell"}, "Connection": {"close"}},
	})
	want := http.Header{"Warning": {"of the gateway", "of the cell", "another"}, "Date": {"of the cell"}, "Content-Security-Policy": {"sandbox"}}
	if got := w.Result().Header; !reflect.DeepEqual(got, want) {
		t.Errorf("got headers %q, want %q", got, want)
	}
}
