package difference_test

import (
	"testing"

	"github.com/cellplane/cellplane/internal/difference"
)

// The content of Secrets is not shown.
func TestDescribe(t *testing.T) {
	const applied = "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]"
	for _, tt := range []struct{ kind, field, want string }{
		{"ConfigMap", "data.key", `data.key: "YQ==" -> nothing`},
		{"Secret", "data.key", "data.key would change"},
		{"Secret", applied, applied + " would change"},
		{"Secret", "metadata.labels.app", `metadata.labels.app: "YQ==" -> nothing`},
	} {
		if got := (difference.Difference{Field: tt.field, From: "YQ=="}).Describe(tt.kind); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.kind, got, tt.want)
		}
	}
}
