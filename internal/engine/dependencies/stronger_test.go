package dependencies

import (
	"testing"

	"k8s.io/utils/ptr"
)

// TestStronger keeps a setting that is false, and prefers true.
func TestStronger(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	for _, test := range []struct{ a, b, want *bool }{
		{nil, nil, nil}, {nil, no, no}, {no, nil, no}, {no, no, no}, {yes, no, yes}, {no, yes, yes}, {nil, yes, yes},
	} {
		if got := stronger(test.a, test.b); (got == nil) != (test.want == nil) || ptr.Deref(got, false) != ptr.Deref(test.want, false) {
			t.Errorf("stronger(%v, %v) = %v", test.a, test.b, got)
		}
	}
}
