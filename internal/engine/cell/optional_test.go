package cell_test

import (
	"net/http"
	"strings"
	"testing"
)

// A cell from before there were rollout policies does not serve them. Its engine starts nevertheless.
func TestCellWithoutRolloutPolicies(t *testing.T) {
	proxy := newProxy(t)
	state := startBehind(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "rolloutpolicies") {
			http.NotFound(w, r) // as an API server answers for a resource that it does not know
			return
		}
		proxy.ServeHTTP(w, r)
	})
	if all := state.RolloutPolicies.All(); len(all) != 0 {
		t.Errorf("it has %d rollout policies", len(all))
	}
}
