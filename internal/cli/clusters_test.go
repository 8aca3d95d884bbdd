package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// writeKubeconfig writes a kubeconfig with one context of the given name.
func writeKubeconfig(t *testing.T, context string, config *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{context: config}, ""), file); err != nil {
		t.Fatal(err)
	}
	return file
}

// run runs a command and returns its output.
func run(t *testing.T, cmd *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceUsage = true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTaints(t *testing.T) {
	hub := testenv.SharedAPIServer(t)
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(hub.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "cordon-"}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push}}
	if err := objects.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.Delete(context.Background(), cluster) })
	kubeconfig := writeKubeconfig(t, "mine", hub.RESTConfig())
	for _, step := range []struct {
		cmd  *cobra.Command
		args []string
		want string
	}{
		{newCordon(), nil, "cluster.karmada.io/unschedulable:NoSchedule"},
		{newCordon(), nil, "cluster.karmada.io/unschedulable:NoSchedule"},
		{newTaint(), []string{"a=b:NoExecute", "c:NoSchedule"}, "cluster.karmada.io/unschedulable:NoSchedule a=b:NoExecute c:NoSchedule"},
		{newUncordon(), nil, "a=b:NoExecute c:NoSchedule"},
		{newUncordon(), nil, "a=b:NoExecute c:NoSchedule"},
		{newTaint(), []string{"a=x:NoExecute", "c-"}, "a=x:NoExecute"},
		{newTaint(), []string{"a:NoSchedule-"}, "a=x:NoExecute"},
		{newTaint(), []string{"a:NoExecute-"}, ""},
	} {
		args := append([]string{cluster.Name}, step.args...)
		output, err := run(t, step.cmd, append(args, "--kubeconfig", kubeconfig, "--context", "mine")...)
		if err != nil || !strings.Contains(output, cluster.Name) {
			t.Fatalf("%s %v: %q, %v", step.cmd.Name(), args, output, err)
		}
		current := &clusterv1alpha1.Cluster{}
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(cluster), current); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, taint := range current.Spec.Taints {
			got = append(got, taint.ToString())
		}
		if text := strings.Join(got, " "); text != step.want {
			t.Fatalf("after %s %v the taints are %q, want %q", step.cmd.Name(), args, text, step.want)
		}
	}
	if _, err := run(t, newCordon(), "nobody", "--kubeconfig", kubeconfig, "--context", "mine"); err == nil || err.Error() != "the federation has no cluster nobody; list them with `cellplane kubectl get clusters`" {
		t.Errorf("cordoning an unknown cluster: %v", err)
	}
}

func TestParseTaintsRefuses(t *testing.T) {
	for _, bad := range []string{"", "key", "key:", "key:Sometimes", ":NoSchedule", "a b:NoSchedule", "key=in valid:NoSchedule", "-", "key:Sometimes-"} {
		if _, err := parseTaints([]string{bad}); err == nil {
			t.Errorf("%q is accepted as a taint", bad)
		}
	}
}

func TestAddTaintKeepsTime(t *testing.T) {
	now := metav1.Now()
	before := []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute, TimeAdded: &now}}
	if after := addTaint(slices.Clone(before), corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute}); !slices.Equal(before, after) {
		t.Errorf("repeating a taint changes it to %v", after)
	}
}

func TestJoinAndUnjoin(t *testing.T) {
	hubConfig, err := testenv.StartFederation(t, local.Spec{}).Hub.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	hub := []string{"--kubeconfig", writeKubeconfig(t, "hub", hubConfig), "--context", "hub"}
	member := []string{"--member-kubeconfig", writeKubeconfig(t, "admin", testenv.SharedMembers(t)[2].RESTConfig()), "--member-context", "admin"}
	command := func(args ...string) []string { return slices.Concat([]string{"cli"}, args, hub) }
	if _, err := run(t, newJoin(), command()...); err == nil || !strings.Contains(err.Error(), "--member-kubeconfig") {
		t.Errorf("joining without a kubeconfig: %v", err)
	}
	output, err := run(t, newJoin(), command(append(member, "--cells", "cell-a", "--region", "north", "--zone", "n1", "--zone", "n2", "--provider", "metal", "--labels", "tier=gold")...)...)
	if err != nil || !strings.Contains(output, "Cluster cli (https://") {
		t.Fatalf("joining: %q, %v", output, err)
	}
	t.Cleanup(func() { _, _ = run(t, newUnjoin(), command("--force")...) })
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(hubConfig, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	cluster := &clusterv1alpha1.Cluster{}
	if err := objects.Get(t.Context(), client.ObjectKey{Name: "cli"}, cluster); err != nil {
		t.Fatal(err)
	}
	if cluster.Spec.Region != "north" || !slices.Equal(cluster.Spec.Zones, []string{"n1", "n2"}) || cluster.Spec.Provider != "metal" || cluster.Labels["tier"] != "gold" {
		t.Errorf("the cluster is %+v", cluster)
	}
	if output, err := run(t, newRotate(), command("--cells", "cell-a", "--grace", "0s")...); err != nil || !strings.Contains(output, "tokens of cell-a") {
		t.Errorf("rotating: %q, %v", output, err)
	}
	if output, err := run(t, newUnjoin(), command()...); err != nil || !strings.Contains(output, "has left") {
		t.Errorf("unjoining: %q, %v", output, err)
	}
}
