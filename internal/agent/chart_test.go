package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/usage"
)

// rendered returns the objects of the chart, by kind and namespace.
func rendered(t *testing.T, values string) (map[string]*unstructured.Unstructured, error) {
	t.Helper()
	chart, err := loader.LoadDir("../../deploy/charts/cellplane-agent")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &set); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, set, chartutil.ReleaseOptions{Name: "agent", Namespace: "elsewhere"}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]*unstructured.Unstructured{}
	for name, text := range files {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		for document := range strings.SplitSeq(text, "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if len(object.Object) > 0 {
				objects[strings.TrimSuffix(object.GetKind()+" "+object.GetNamespace(), " ")] = object
			}
		}
	}
	return objects, nil
}

func as[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	into := new(T)
	if object == nil {
		t.Fatalf("there is no %T", into)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
		t.Fatal(err)
	}
	return into
}

// TestChart checks what the chart of an agent installs, against what the agent needs.
func TestChart(t *testing.T) {
	roleOf := map[string]string{} // by the name of the binding: it cannot be changed
	for _, test := range []struct {
		values string
		role   string
		roles  int
	}{
		{"", "agent-elsewhere", 2},
		{"mode: pull", "cluster-admin", 0},
		{"{mode: metrics, replicas: 1, extraArgs: [--workload-metrics-interval=30s], image: {digest: \"sha256:" + strings.Repeat("0a", 32) + "\"}}", "agent-elsewhere", 2},
	} {
		objects, err := rendered(t, test.values)
		if err != nil {
			t.Fatalf("%s: %v", test.values, err)
		}
		options, flags := NewOptions(), pflag.NewFlagSet("agent", pflag.ContinueOnError)
		options.AddFlags(flags)
		pod := as[appsv1.Deployment](t, objects["Deployment elsewhere"]).Spec.Template.Spec
		if err := flags.Parse(pod.Containers[0].Args[1:]); err != nil || pod.Containers[0].Args[0] != "agent" || !options.LeaderElect {
			t.Errorf("%s: the agent gets %v: %v", test.values, pod.Containers[0].Args, err)
		}
		if options.MetricsOnly != (test.roles > 0) {
			t.Errorf("%s: it reports only metrics: %v", test.values, options.MetricsOnly)
		}
		if binding := as[rbacv1.ClusterRoleBinding](t, objects["ClusterRoleBinding"]); binding.RoleRef.Name != test.role || binding.Subjects[0].Namespace != "elsewhere" || binding.Subjects[0].Name != pod.ServiceAccountName {
			t.Errorf("%s: it is bound by %+v", test.values, binding)
		} else if role, bound := roleOf[binding.Name]; bound && role != test.role {
			t.Errorf("%s: an upgrade would change the role of binding %s", test.values, binding.Name)
		} else {
			roleOf[binding.Name] = test.role
		}
		roles := 0
		for key := range objects {
			if strings.HasPrefix(key, "Role ") {
				roles++
			}
		}
		if roles != test.roles {
			t.Errorf("%s: there are %d roles", test.values, roles)
		}
		if test.roles > 0 {
			checkRules(t, objects)
		}
	}
	for _, invalid := range []string{"mode: push", "replicas: 0", "image: {digest: latest}", "image: {name: x}", "unknown: 1"} {
		if _, err := rendered(t, invalid); err == nil {
			t.Errorf("%s is accepted", invalid)
		}
	}
}

// checkRules checks the rights of an agent that only reports metrics: those of the code, its Secret, its Lease, and no more.
func checkRules(t *testing.T, objects map[string]*unstructured.Unstructured) {
	t.Helper()
	if got, want := as[rbacv1.ClusterRole](t, objects["ClusterRole"]).Rules, usage.Rules(); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("in the cluster it may %v, want %v", got, want)
	}
	for where, want := range map[string]string{
		names.SystemNamespace:  "secrets [" + names.AgentSecret + "] [get update]",
		names.ClusterNamespace: "leases [] [create], leases [" + leaseName + "] [get update], namespaces [" + names.ClusterNamespace + "] [get]",
	} {
		var got []string
		for _, rule := range as[rbacv1.Role](t, objects["Role "+where]).Rules {
			got = append(got, fmt.Sprint(strings.Join(rule.Resources, ","), " ", rule.ResourceNames, " ", rule.Verbs))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("in %s it may %s, want %s", where, text, want)
		}
		if subjects := as[rbacv1.RoleBinding](t, objects["RoleBinding "+where]).Subjects; !slices.Equal(subjects, as[rbacv1.ClusterRoleBinding](t, objects["ClusterRoleBinding"]).Subjects) {
			t.Errorf("in %s, the rights are those of %v", where, subjects)
		}
	}
}
