package gateway_test

import (
	"testing"

	"github.com/cellplane/cellplane/internal/gateway"
)

func TestPlainPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/api": true, "/api/v1/": true, "/api/v1/namespaces/a/pods/b": true, "/apis/x/v1/namespaces/a/roles/system:x": true,
		"": false, "api": false, "//": false, "/api//v1": false, "/api/./v1": false, "/api/../v1": false, "/..": false, "/api/v1/..": false, "/.../x": true,
	} {
		if got := gateway.PlainPath(path); got != want {
			t.Errorf("%q: got %v", path, got)
		}
	}
}
