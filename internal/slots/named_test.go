package slots

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

// TestNamed checks that names are in the slot, valid, different, the same for the same seed, and none that Kubernetes generates.
func TestNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		namespace := rapid.StringMatching(`[a-z]([a-z0-9-]{0,61}[a-z0-9])?`).Draw(t, "namespace")
		owner := rapid.StringMatching(`[a-z]([a-z0-9-]{0,200}[a-z0-9])?`).Draw(t, "owner")
		seed := rapid.Uint64().Draw(t, "seed")
		slot := Of(namespace, owner)
		first := func(n int) []string {
			var names []string
			for name := range Named(namespace, owner+"-", slot, seed) {
				if names = append(names, name); len(names) == n {
					break
				}
			}
			return names
		}
		names := first(2)
		for _, name := range names {
			suffix := strings.TrimPrefix(name, owner+"-")
			if Of(namespace, name) != slot || len(validation.IsDNS1123Subdomain(name)) > 0 || rand.SafeEncodeString(suffix) == suffix {
				t.Errorf("%s in slot %d, want a valid name in slot %d that Kubernetes does not generate", name, Of(namespace, name), slot)
			}
		}
		if names[0] == names[1] || first(1)[0] != names[0] {
			t.Errorf("got %v, then %v", names, first(1))
		}
	})
}

func BenchmarkNamed(b *testing.B) {
	slot := Of("shop", "web")
	for i := range b.N {
		for range Named("shop", "web-", slot, uint64(i)*0x9e3779b97f4a7c15) {
			break
		}
	}
}
