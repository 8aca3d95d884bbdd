package namespaces

import (
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
)

// P15: all namespaces are created in members except those of the control plane, those that match an expression and
// those with a label.
func TestPropagated(t *testing.T) {
	n := &Controller{skip: []*regexp.Regexp{regexp.MustCompile("^(?:kube-.*)$"), regexp.MustCompile("^(?:private)$")}}
	for name, want := range map[string]bool{
		"default": true, "team-a": true, "karmada": true, "karmada-es": true, "my-kube-system": true, "privately": true,
		"karmada-system": false, "karmada-cluster": false, "karmada-es-member1": false, "kube-system": false, "private": false,
	} {
		if got := n.propagated(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != want {
			t.Errorf("%s is propagated: %t", name, got)
		}
	}
	for value, want := range map[string]bool{"true": false, "false": true, "": true} {
		labelled := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{names.SkipAutoPropagationLabel: value}}}
		if got := n.propagated(labelled); got != want {
			t.Errorf("with the label %q it is propagated: %t", value, got)
		}
	}
}
