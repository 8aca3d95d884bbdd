package slots

import (
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// TestOfVectors fixes the data format: a change here moves objects of running installations.
func TestOfVectors(t *testing.T) {
	for _, test := range []struct {
		namespace, name string
		want            Slot
	}{
		{"default", "web", 5543},
		{"team-a", "app-config", 11376},
		{"prod", "rsi-app", 4865},
		{"", "web", 13362},
		{"", "", 6890},
	} {
		if got := Of(test.namespace, test.name); got != test.want {
			t.Errorf("Of(%q, %q) = %d, want %d", test.namespace, test.name, got, test.want)
		}
	}
}

func TestOfIsTheHashOfTheKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		namespace := strings.Repeat(rapid.String().Draw(t, "namespace"), rapid.IntRange(1, 40).Draw(t, "times"))
		name := rapid.String().Draw(t, "name")
		if got, want := Of(namespace, name), Slot(xxhash.Sum64String(namespace+"/"+name)%Count); got != want {
			t.Fatalf("Of = %d, want %d", got, want)
		}
	})
}

func TestParseHint(t *testing.T) {
	for slot := range Slot(Count) {
		if got, err := ParseHint(slot.String()); err != nil || got != slot {
			t.Fatalf("ParseHint(%q) = %d, %v", slot.String(), got, err)
		}
	}
	for _, bad := range []string{"", "16384", "99999", "100000", "-1", "+1", "01", "00", "1 ", " 1", "1e3", "0x1", "１", strings.Repeat("1", 1000)} {
		if got, err := ParseHint(bad); err == nil {
			t.Errorf("ParseHint(%.20q) = %d, want an error", bad, got)
		}
	}
}

func FuzzParseHint(f *testing.F) {
	f.Add("0")
	f.Add("16383")
	f.Add("016383")
	f.Fuzz(func(t *testing.T, value string) {
		slot, err := ParseHint(value)
		if err == nil && (slot >= Count || slot.String() != value) {
			t.Fatalf("ParseHint(%q) = %d", value, slot)
		}
	})
}

func TestTemplates(t *testing.T) {
	kinds := NewKinds("Deployment", "ConfigMap", "Kind", "My-Kind")
	for binding, want := range map[string][]Template{
		"web-deployment":            {{"web", "deployment"}},
		"web-a-configmap":           {{"web-a", "configmap"}},
		"x-my-kind":                 {{"x-my", "kind"}, {"x", "my-kind"}},
		"web.v1-deployment":         {{"web.v1", "deployment"}},
		"deployment-deployment":     {{"deployment", "deployment"}},
		"a-deployment-x-deployment": {{"a-deployment-x", "deployment"}},
		"web-service":               nil,
		"deployment":                nil,
		"-deployment":               nil,
		"web-":                      nil,
		"":                          nil,
		"-":                         nil,
	} {
		if got := slices.Collect(kinds.Templates(binding)); !slices.Equal(got, want) {
			t.Errorf("Templates(%q) = %v, want %v", binding, got, want)
		}
	}
}

func TestBindingFollowsItsTemplate(t *testing.T) {
	kinds := []string{"Deployment", "Service", "Stateful-Set", "Set"}
	set := NewKinds(kinds...)
	rapid.Check(t, func(t *rapid.T) {
		namespace := rapid.StringMatching(`[a-z]{1,10}`).Draw(t, "namespace")
		name := rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,12}[a-z0-9])?`).Draw(t, "name")
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		binding := strings.ToLower(name + "-" + kind)
		if !slices.Contains(set.OfBinding(namespace, binding), Of(namespace, name)) {
			t.Fatalf("binding %q is not looked up in the slot of %q", binding, name)
		}
	})
}
