package adopt_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/render"
)

// A group is refused exactly if its clusters differ in a field that an override cannot set, and each such field is named. Of any other group the plan
// shows the fields that differ, and none of them changes in a cluster.
func TestRefusedFieldsAreNamed(t *testing.T) {
	p := planner()
	rapid.Check(t, func(t *rapid.T) {
		kind := drawKind(t)
		drawn := kind.draw(t)
		g := kind.group(t, drawn...)
		item, err := p.Plan(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		kept := kind.kept(drawn)
		wantEach(t, "shown", item.Differences, kind.differing(kept, overridden, fixed, granting))
		cannot, grants := kind.differing(kept, fixed), kind.differing(kept, granting)
		switch refused := refusedFields(item); {
		case len(cannot) > 0:
			wantEach(t, "refused", refused, cannot)
		case kind.clusterScoped && len(item.Differences) > 0:
			wantEach(t, "refused", refused, item.Differences[:1])
		case len(grants) > 0: // an engine ends at the first
			wantEach(t, "refused", refused, grants[:1])
		default:
			wantEach(t, "refused", refused, nil)
			wantEach(t, "changed", changedFields(t, p, g, item, item.Template), nil)
		}
	})
}

// A template that is there already is refused if it has another value of a field that the plan sets, and the field is named. What it has in addition can
// be a default of its API server: the rehearsal names it.
func TestFieldsOfOtherTemplatesAreNamed(t *testing.T) {
	p := planner()
	rapid.Check(t, func(t *rapid.T) {
		kind := drawKind(t)
		planned := kind.draw(t)[0]
		g := kind.group(t, planned)
		stored, i := slices.Clone(planned), rapid.IntRange(0, len(kind.fields)-1).Draw(t, "field")
		field := kind.fields[i]
		stored[i] = rapid.SampledFrom(field.values).Draw(t, "value in the federation")
		g.Template = kind.object(t, stored)
		g.Template.SetUID("template")

		item, err := p.Plan(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		switch refused := refusedFields(item); {
		case reflect.DeepEqual(planned[i], stored[i]), field.effect == ownOfCluster:
			wantEach(t, "refused", refused, nil)
		case extends(planned[i], stored[i]):
			wantEach(t, "refused", refused, nil)
			wantEach(t, "changed", changedFields(t, p, g, item, g.Template), []string{field.path})
		default:
			wantEach(t, "refused", refused, []string{field.path})
		}
	})
}

// extends reports whether a value has all of another one, and more fields.
func extends(value, by any) bool {
	less, isObject := value.(tree)
	more, areObjects := by.(tree)
	if !isObject || !areObjects {
		return value == nil || reflect.DeepEqual(value, by)
	}
	for key := range less {
		if !extends(less[key], more[key]) {
			return false
		}
	}
	return true
}

// If another policy of the federation sets a field, the plan is refused exactly if that would change the field in a cluster, and the field is named.
func TestFieldsOfOtherPoliciesAreNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := drawKind(t)
		g := kind.group(t, kind.draw(t)[0])
		live := g.Objects[0].Object
		field := rapid.SampledFrom(kind.fields).Draw(t, "field")
		value := rapid.SampledFrom(field.values).Draw(t, "value of the policy")
		path := strings.Split(field.path, ".")
		_, hasParent, _ := unstructured.NestedMap(live.Object, path[:len(path)-1]...)
		if value == nil || !hasParent || field.effect == scaling {
			return // a patch that adds a value cannot do it, or places other replicas
		}
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		overriders := policyv1alpha1.Overriders{
			Plaintext: []policyv1alpha1.PlaintextOverrider{{Path: "/" + strings.Join(path, "/"), Operator: policyv1alpha1.OverriderOpAdd, Value: apiextensionsv1.JSON{Raw: raw}}},
		}
		p := planner(func(o *adopt.Options) {
			o.ClusterOverrides = []*policyv1alpha1.ClusterOverridePolicy{{
				ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: policyv1alpha1.OverrideSpec{OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: overriders}}},
			}}
		})
		item, err := p.Plan(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		has, _, _ := unstructured.NestedFieldNoCopy(live.Object, path...)
		if refused := refusedFields(item); reflect.DeepEqual(has, value) || len(refused) == 0 {
			wantEach(t, "refused", refused, nil)
			wantEach(t, "changed", changedFields(t, p, g, item, item.Template), nil)
		} else {
			wantEach(t, "refused", refused, []string{field.path})
		}
	})
}

func drawKind(t *rapid.T) *variableKind {
	kinds := rapid.IntRange(0, len(variableKinds)-1)
	kind := &variableKinds[kinds.Draw(t, "kind")]
	t.Logf("the kind is %s %s", kind.apiVersion, kind.kind)
	return kind
}

// refusal finds the field in the sentence that refuses a plan.
var refusal = regexp.MustCompile(`^(\S+) differs between clusters[,;]|, with another (\S+); delete|^(\S+) in cluster a would change;| changes (\S+), but an override must not`)

// refusedFields returns the field that each obstacle of a plan names. It returns sentences that name none as they are.
func refusedFields(item *adopt.Item) (fields []string) {
	for _, obstacle := range item.Obstacles {
		field := obstacle
		if groups := refusal.FindStringSubmatch(obstacle); groups != nil {
			field = strings.Join(groups[1:], "")
		}
		fields = append(fields, field)
	}
	return fields
}

// wantEach checks that each wanted field is among some fields, as a whole or with what is below it, and that no other is.
func wantEach(t *rapid.T, what string, got, want []string) {
	t.Helper()
	for _, field := range want {
		if !slices.ContainsFunc(got, func(other string) bool { return related(field, other) }) {
			t.Fatalf("%s is not %s, only %q", field, what, got)
		}
	}
	for _, field := range got {
		if !slices.ContainsFunc(want, func(other string) bool { return related(field, other) }) {
			t.Fatalf("%s is %s, and only %q should be", field, what, want)
		}
	}
}

// changedFields returns the fields that change in clusters if the federation writes what it makes of a template.
func changedFields(t *rapid.T, p *adopt.Planner, g adopt.Group, item *adopt.Item, template *unstructured.Unstructured) (fields []string) {
	t.Helper()
	rendered, err := p.Render(t.Context(), item, template)
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range g.Objects {
		if item.IsLeftOut(member.Cluster) {
			continue
		}
		stamped := merge.Stamp(rendered[member.Cluster], merge.Marks{WorkName: "w", WorkID: "id", Cell: "cell"})
		merged, _, err := render.Merge(t.Context(), interpreter.New(interpreter.Options{}), merge.New(), member.Object, stamped)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range difference.Between(member.Object, merged) {
			fields = append(fields, change.Field)
		}
	}
	return fields
}
