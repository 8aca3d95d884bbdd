package override_test

import (
	"fmt"
	"testing"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/override"
)

func TestImageOverriders(t *testing.T) {
	const digest = "sha256:0000000000000000000000000000000000000000000000000000000000000007"
	for _, test := range []struct {
		from, to string
		want     []policyv1alpha1.ImageOverrider
		refused  bool
	}{
		{from: "web:1", to: "web:1"},
		{from: "web:1", to: "web:2", want: []policyv1alpha1.ImageOverrider{{Component: "Tag", Operator: "replace", Value: "2"}}},
		{from: "web:1", to: "web", want: []policyv1alpha1.ImageOverrider{{Component: "Tag", Operator: "remove"}}},
		{from: "web:1", to: "web@" + digest, want: []policyv1alpha1.ImageOverrider{{Component: "Tag", Operator: "replace", Value: digest}}},
		{from: "a.example/web:1", to: "b.example:5000/team/web:1", want: []policyv1alpha1.ImageOverrider{
			{Component: "Registry", Operator: "replace", Value: "b.example:5000"}, {Component: "Repository", Operator: "replace", Value: "team/web"},
		}},
		{from: "web:1", to: "web:2@" + digest, refused: true}, // no component has both
		{from: "web:1", to: "Not An Image", refused: true},
		{from: "", to: "web", refused: true},
	} {
		got, ok := override.ImageOverriders(test.from, test.to)
		if ok == test.refused || ok && fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("from %q to %q: %v, %v", test.from, test.to, got, ok)
		}
	}
}
