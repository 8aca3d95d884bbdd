package interpreter

import (
	"context"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fixture"
)

var operations = []configv1alpha1.InterpreterOperation{
	configv1alpha1.InterpreterOperationInterpretReplica, configv1alpha1.InterpreterOperationInterpretComponent,
	configv1alpha1.InterpreterOperationReviseReplica, configv1alpha1.InterpreterOperationRetain,
	configv1alpha1.InterpreterOperationAggregateStatus, configv1alpha1.InterpreterOperationInterpretStatus,
	configv1alpha1.InterpreterOperationInterpretHealth, configv1alpha1.InterpreterOperationInterpretDependency,
}

func scripts(name, apiVersion, kind string, rules configv1alpha1.CustomizationRules) *configv1alpha1.ResourceInterpreterCustomization {
	return &configv1alpha1.ResourceInterpreterCustomization{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: configv1alpha1.ResourceInterpreterCustomizationSpec{
			Target:         configv1alpha1.CustomizationTarget{APIVersion: apiVersion, Kind: kind},
			Customizations: rules,
		},
	}
}

// TestUnknownKind checks the defaults for a kind that no layer supports.
func TestUnknownKind(t *testing.T) {
	i, ctx := New(Options{}), context.Background()
	obj := fixture.Object(t, `{apiVersion: example.com/v1, kind: Foo, metadata: {name: x}, spec: {replicas: 3}, status: {a: [1]}}`)
	for _, op := range operations {
		if i.Supports(obj.GroupVersionKind(), op) {
			t.Errorf("%s is supported", op)
		}
	}
	if n, r, err := i.Replicas(ctx, obj); n != 0 || r != nil || err != nil {
		t.Errorf("replicas: %d, %v, %v", n, r, err)
	}
	if c, err := i.Components(ctx, obj); c != nil || err != nil {
		t.Errorf("components: %v, %v", c, err)
	}
	if got, err := i.ReviseReplica(ctx, obj, 5); got != obj || err != nil {
		t.Errorf("revise: %v, %v", got, err)
	}
	if got, err := i.Retain(ctx, obj, obj); got != obj || err != nil {
		t.Errorf("retain: %v, %v", got, err)
	}
	if got, err := i.AggregateStatus(ctx, obj, fixture.Items(t, `{a: 1}`)); got != obj || err != nil {
		t.Errorf("aggregate: %v, %v", got, err)
	}
	if got, err := i.Health(ctx, obj); got != workv1alpha2.ResourceHealthy || err != nil {
		t.Errorf("health: %v, %v", got, err)
	}
	if got, err := i.Dependencies(ctx, obj); got != nil || err != nil {
		t.Errorf("dependencies: %v, %v", got, err)
	}
	status, err := i.ReflectStatus(ctx, obj)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, fixture.Status(t, status), fixture.Value(t, `{a: [1]}`))
}

// TestPrecedence adds layers that give different answers for the same Deployment. Precedence is per operation.
func TestPrecedence(t *testing.T) {
	server := newHook(t, func(_ *configv1alpha1.ResourceInterpreterRequest) *configv1alpha1.ResourceInterpreterResponse {
		healthy := false
		n := int32(22)
		return &configv1alpha1.ResourceInterpreterResponse{Successful: true, Replicas: &n, Healthy: &healthy}
	})
	ctx := context.Background()
	obj := fixture.Object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: default}, spec: {replicas: 1}, status: {}}`)
	i := New(Options{})
	replicas := func() int32 {
		t.Helper()
		n, _, err := i.Replicas(ctx, obj)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := replicas(); n != 1 {
		t.Errorf("built in: %d", n)
	}
	if err := i.SetWebhooks(server.configuration("hooks", []configv1alpha1.InterpreterOperation{"InterpretReplica"}, "apps", "v1", "Deployment")); err != nil {
		t.Fatal(err)
	}
	if n := replicas(); n != 22 {
		t.Errorf("webhook over built in: %d", n)
	}
	err := i.SetCustomizations([]*configv1alpha1.ResourceInterpreterCustomization{scripts("c", "apps/v1", "Deployment", configv1alpha1.CustomizationRules{
		ReplicaResource: &configv1alpha1.ReplicaResourceRequirement{LuaScript: `function GetReplicas(obj) return 33 end`},
	})})
	if err != nil {
		t.Fatal(err)
	}
	if n := replicas(); n != 33 {
		t.Errorf("script over webhook: %d", n)
	}
	if health, err := i.Health(ctx, obj); health != workv1alpha2.ResourceUnhealthy || err != nil {
		// observedGeneration equals generation and no replicas are updated: unhealthy by the built-in rule.
		t.Errorf("an operation that no other layer supports gave %s, %v", health, err)
	}
	if err := i.SetCustomizations(nil); err != nil {
		t.Fatal(err)
	}
	if n := replicas(); n != 22 {
		t.Errorf("after the script is gone: %d", n)
	}
	if err := i.SetWebhooks(nil); err != nil {
		t.Fatal(err)
	}
	if n := replicas(); n != 1 {
		t.Errorf("after the webhook is gone: %d", n)
	}
	if !i.Supports(schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "CloneSet"}, "InterpretReplica") {
		t.Error("third-party kinds are not built in")
	}
}

func TestErrorsNameTheObject(t *testing.T) {
	i := New(Options{})
	obj := fixture.Object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: default}, spec: {replicas: many}}`)
	_, _, err := i.Replicas(context.Background(), obj)
	if want := "finding the replicas of Deployment default/web: spec.replicas: expected an integer, found a string"; err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

// TestConcurrentUse changes the layers while they are used, for the race detector.
func TestConcurrentUse(t *testing.T) {
	i, ctx := New(Options{}), context.Background()
	obj := fixture.Object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1}}`)
	custom := []*configv1alpha1.ResourceInterpreterCustomization{scripts("c", "apps/v1", "Deployment", configv1alpha1.CustomizationRules{
		ReplicaResource: &configv1alpha1.ReplicaResourceRequirement{LuaScript: `function GetReplicas(obj) return obj.spec.replicas + 1 end`},
	})}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 200 {
				if n, _, err := i.Replicas(ctx, obj); err != nil || n != 1 && n != 2 {
					t.Errorf("got %d, %v", n, err)
				}
			}
		})
	}
	wait.Go(func() {
		for n := range 100 {
			if err := i.SetCustomizations(custom[:n%2]); err != nil {
				t.Error(err)
			}
			if err := i.SetWebhooks(nil); err != nil {
				t.Error(err)
			}
		}
	})
	wait.Wait()
}

func TestValidateCustomization(t *testing.T) {
	good := scripts("mine", "apps/v1", "Deployment", configv1alpha1.CustomizationRules{
		HealthInterpretation:     &configv1alpha1.HealthInterpretation{LuaScript: "function InterpretHealth(o) return true end"},
		DependencyInterpretation: &configv1alpha1.DependencyInterpretation{LuaScript: "function GetDependencies(o) return {} end"},
	})
	other := good.DeepCopy()
	other.Name = "theirs"
	if err := ValidateCustomization(good, []*configv1alpha1.ResourceInterpreterCustomization{good}); err != nil {
		t.Errorf("a good customization: %v", err)
	}
	cases := map[string]struct {
		change func(*configv1alpha1.ResourceInterpreterCustomization)
		others []*configv1alpha1.ResourceInterpreterCustomization
		want   string
	}{
		"syntax": {func(c *configv1alpha1.ResourceInterpreterCustomization) {
			c.Spec.Customizations.HealthInterpretation.LuaScript = "function F()\n\n  retrun x y\nend"
		}, nil, "spec.customizations.healthInterpretation.luaScript: the script does not compile: ResourceInterpreterCustomization mine (healthInterpretation) line:3"},
		"no kind": {func(c *configv1alpha1.ResourceInterpreterCustomization) { c.Spec.Target.Kind = "" }, nil, "spec.target: apiVersion and kind are required"},
		"version": {func(c *configv1alpha1.ResourceInterpreterCustomization) { c.Spec.Target.APIVersion = "a/b/c" }, nil, "spec.target.apiVersion"},
		"nothing": {func(c *configv1alpha1.ResourceInterpreterCustomization) {
			c.Spec.Customizations = configv1alpha1.CustomizationRules{}
		}, nil, "at least one script is required"},
		"conflict": {func(*configv1alpha1.ResourceInterpreterCustomization) {}, []*configv1alpha1.ResourceInterpreterCustomization{other}, "spec.customizations.healthInterpretation: ResourceInterpreterCustomization theirs already defines it for this kind"},
	}
	for name, tc := range cases {
		c := good.DeepCopy()
		tc.change(c)
		err := ValidateCustomization(c, tc.others)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "dependencyInterpretation") {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
