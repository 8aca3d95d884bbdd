package cli

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/testenv"
)

// viewed runs a command and returns its output, with single spaces and errors at the end, and its exit code.
func (w *adoptionWorld) viewed(newCmd func(genericiooptions.IOStreams) *cobra.Command, args ...string) (string, int) {
	w.Helper()
	var out bytes.Buffer
	cmd := newCmd(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	said, err := run(w.T, cmd, append(args, "-n", w.ns, "--kubeconfig", w.kubeconfig)...)
	code := 0
	var exit exitError
	switch {
	case errors.As(err, &exit):
		code = exit.code
	case err != nil:
		code = 1
		said += err.Error()
	}
	return strings.ReplaceAll(strings.Join(strings.Fields(out.String()+said), " "), w.ns, "NS"), code
}

// testViews reads two members, and the federation, as one.
func testViews(t *testing.T, w *adoptionWorld) {
	promote := func(genericiooptions.IOStreams) *cobra.Command { return newPromote() }
	for _, test := range []struct {
		cmd  func(genericiooptions.IOStreams) *cobra.Command
		args string
		code int
		want []string
	}{
		{newGet, "deploy web -C left,right", 0, []string{"NAME CLUSTER READY UP-TO-DATE AVAILABLE AGE ADOPTION web left", "web right"}},
		{newGet, "deploy -l app=web --operation-scope all --no-headers", 0, []string{"web left", "web right"}},
		{newGet, "deploy,svc --operation-scope members", 0, []string{"deployment.apps/api left", "deployment.apps/scaled right", "service/front left NodePort"}},
		{newGet, "cm -C right -A", 0, []string{"NAMESPACE NAME CLUSTER DATA AGE ADOPTION", "NS settings right 1"}},
		{newGet, "cm settings -C right -o jsonpath={.data.cluster}", 0, []string{"right"}},
		{newGet, "cm settings -C left,right -o jsonpath={.items[*].metadata.annotations}", 0, []string{`{"cellplane.io/cluster":"left"} {"cellplane.io/cluster":"right"}`}},
		{newGet, "cm -C left,right -o name", 0, []string{"configmap/settings configmap/unused", "configmap/settings configmap/unused"}},
		{newGet, "deploy -C left,right --sort-by .spec.replicas", 0, []string{"web left"}},
		{newGet, "cm nothing -C left,right", 1, []string{`configmaps "nothing" not found`}},
		{newGet, "cm -C middle", 1, []string{`there is no cluster "middle" in the federation; it has left, right`}},
		{newGet, "cm --operation-scope here", 1, []string{`--operation-scope must be one of karmada, members, all, not "here"`}},
		{newGet, "nothings -C left", 1, []string{`the server doesn't have a resource type "nothings"`}},
		{newGet, "propagationpolicies -C left", 1, []string{"cluster left does not have the resource propagationpolicies.policy.karmada.io in version v1alpha1"}},
		{newGet, "propagationpolicies --operation-scope all", 1, []string{"cluster left does not have the resource", "cluster right does not have the resource"}},
		{newGet, "", 1, []string{"say what to get"}},
		{newDescribe, "deploy web -C left", 0, []string{"Name: web", "registry.example/app:left"}},
		{newDescribe, "deploy/web --operation-scope members", 1, []string{"deploy/web is in the clusters left, right; choose one with -C"}},
		{newDescribe, "deploy --operation-scope members", 1, []string{"choose a cluster with -C; the federation has left, right"}},
		{newLogs, "deploy/web", 1, []string{"deploy/web is in the clusters left, right; choose one with -C"}},
		{newLogs, "nothing", 1, []string{`looking for pods/nothing in left, right: pods "nothing" not found`}},
		{newTop, "pod", 1, []string{"cluster left answers: Metrics API not available", "cluster right answers: Metrics API not available"}},
		{promote, "deployment scaled -C left --dry-run -d", 0, []string{"kind: PropagationPolicy", "kind: Deployment"}},
		{promote, "deployment web -C left --dry-run -d", 0, []string{"kind: ConfigMap", "- left"}},
		{promote, "deployment nothing -C left", 1, []string{"cluster left has no deployments nothing in namespace NS"}},
		{promote, "nothings web -C left", 1, []string{`the federation does not have the kind "nothings"`}},
		{promote, "deployment web", 1, []string{"choose the cluster that has the object with -C"}},
	} {
		got, code := w.viewed(test.cmd, strings.Fields(test.args)...)
		if code != test.code {
			t.Errorf("%s ends with exit code %d, want %d: %s", test.args, code, test.code, got)
		}
		for _, words := range test.want {
			if !strings.Contains(got, words) {
				t.Errorf("%s does not print %q: %s", test.args, words, got)
			}
		}
	}
	testViewOfAbsentCluster(t, w)
	testWatchedView(t, w)
}

// testViewOfAbsentCluster checks that the others are shown.
func testViewOfAbsentCluster(t *testing.T, w *adoptionWorld) {
	gone := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push, APIEndpoint: "https://127.0.0.1:1"}}
	if err := w.federation.Create(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	for _, scope := range []string{scopeMembers, scopeAll} {
		testenv.Eventually(t, "the gateway knows the cluster", func(context.Context) (bool, error) {
			got, code := w.viewed(newGet, "deploy", "web", "--operation-scope", scope)
			ok := code == 1 && strings.Contains(got, "cellplane: cluster gone cannot be reached in your name") && strings.Contains(got, "web left") && strings.Contains(got, "web right")
			return ok, errors.New(got)
		})
	}
	if err := w.federation.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the cluster has left", func(ctx context.Context) (bool, error) {
		err := w.federation.Get(ctx, client.ObjectKeyFromObject(gone), gone)
		return err != nil && client.IgnoreNotFound(err) == nil, err
	})
}

// testWatchedView watches both members, from a list and without one.
func testWatchedView(t *testing.T, w *adoptionWorld) {
	v := &view{gatewayFlags: gatewayFlags{kubeconfig: w.kubeconfig}, streams: genericiooptions.NewTestIOStreamsDiscard()}
	if err := errors.Join(v.connect(t.Context()), v.openAll(scopeMembers, v.chosen())); err != nil {
		t.Fatal(err)
	}
	reader, err := dynamic.NewForConfig(v.config)
	if err != nil {
		t.Fatal(err)
	}
	settings := reader.Resource(gvr("", "v1", "configmaps")).Namespace(w.ns)
	selected := metav1.ListOptions{FieldSelector: "metadata.name=settings"}
	list, err := settings.List(t.Context(), selected)
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("listing: %v, %v", list, err)
	}
	unversioned, err := settings.Watch(t.Context(), selected)
	if err != nil {
		t.Fatal(err)
	}
	defer unversioned.Stop()
	if event := <-unversioned.ResultChan(); event.Type != watch.Added {
		t.Errorf("a watch without a version begins with %v", event)
	}
	selected.ResourceVersion = list.GetResourceVersion()
	versioned, err := settings.Watch(t.Context(), selected)
	if err != nil {
		t.Fatal(err)
	}
	defer versioned.Stop()
	for name, member := range w.members {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "settings"}}
		if err := member.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"changed":"yes"}}}`))); err != nil {
			t.Fatalf("changing %s: %v", name, err)
		}
	}
	for _, events := range []watch.Interface{unversioned, versioned} {
		var clusters []string
		for range w.members {
			event := <-events.ResultChan()
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type != watch.Modified || object.GetLabels()["changed"] != "yes" {
				t.Fatalf("the event is %v", event)
			}
			clusters = append(clusters, object.GetAnnotations()[names.ClusterAnnotation])
		}
		if slices.Sort(clusters); !slices.Equal(clusters, []string{"left", "right"}) {
			t.Errorf("the events are of %v", clusters)
		}
	}
}

// The tables of clusters are sorted together.
func TestUsage(t *testing.T) {
	var all usage
	all.add("left", "NAME   CPU(cores)   MEMORY(bytes)\na   5m   2Gi\nb   1   20Mi\n")
	all.add("empty", "")
	all.add("right", "NAME   CPU(cores)   MEMORY(bytes)\nc   700m   300Mi\n")
	for by, want := range map[string]string{
		"":       "NAME CLUSTER CPU(cores) MEMORY(bytes) a left 5m 2Gi b left 1 20Mi c right 700m 300Mi",
		"cpu":    "NAME CLUSTER CPU(cores) MEMORY(bytes) b left 1 20Mi c right 700m 300Mi a left 5m 2Gi",
		"memory": "NAME CLUSTER CPU(cores) MEMORY(bytes) a left 5m 2Gi c right 700m 300Mi b left 1 20Mi",
	} {
		sorted := usage{header: all.header, rows: slices.Clone(all.rows)}
		sorted.sort(by)
		var out bytes.Buffer
		if err := sorted.print(&out, false); err != nil || strings.Join(strings.Fields(out.String()), " ") != want {
			t.Errorf("sorted by %q:\n%s(%v)", by, out.String(), err)
		}
	}
}
