package engine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/engine"
)

// engineProcess makes the test binary run an engine with the kubeconfig that it names.
const engineProcess = "CELLPLANE_TEST_ENGINE"

func runEngineProcess(kubeconfig string) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		err = (&engine.Config{Cell: os.Getenv(engineProcess + "_CELL"), Config: config, LeaderElect: true}).Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// startEngineProcess runs an engine in a process that the test may kill.
func startEngineProcess(t *testing.T) *exec.Cmd {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"cell": cellConfig}, "cell"), kubeconfig); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), engineProcess+"="+kubeconfig, engineProcess+"_CELL="+federation.Cells[0].Name())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// The leader is killed under load: the other engine finishes the work, and nothing is lost or duplicated.
func TestLeaderIsKilledUnderLoad(t *testing.T) {
	ns := namespace(t)
	stopEngine()
	defer func() {
		stopEngine = startEngine(context.Background())
	}()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: "cellplane-engine-" + federation.Cells[0].Name()}}
	leads := func(not string) string {
		t.Helper()
		until(t, "an engine leads", cell, lease, func(l *coordinationv1.Lease) bool {
			holder := ptr.Deref(l.Spec.HolderIdentity, "")
			return holder != "" && holder != not
		})
		return *lease.Spec.HolderIdentity
	}
	if err := cell.Delete(t.Context(), lease); ctrlclient.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cell.Delete(context.Background(), lease) }) // no engine is left to release it
	leader := startEngineProcess(t)
	first := leads("")
	startEngineProcess(t)
	create(t, policy(ns, "all", []string{"ConfigMap"}))
	const before, after = 20, 20
	for i := range before {
		create(t, configMap(ns, fmt.Sprintf("cm-%d", i), map[string]string{"k": "1"}))
	}
	if err := leader.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for i := before; i < before+after; i++ {
		create(t, configMap(ns, fmt.Sprintf("cm-%d", i), map[string]string{"k": "1"}))
	}
	if second := leads(first); second == first {
		t.Errorf("%s still leads", second)
	}
	for i := range before + after {
		for name := range members {
			delivered(t, name, ns, fmt.Sprintf("cm-%d", i), "k", "1")
		}
	}
	var works workv1alpha1.WorkList
	if err := cell.List(t.Context(), &works); err != nil {
		t.Fatal(err)
	}
	mine := 0
	for i := range works.Items {
		if works.Items[i].Annotations[names.ResourceBindingNamespaceAnnotation] == ns {
			mine++
		}
	}
	if want := (before + after) * len(members); mine != want {
		t.Errorf("there are %d Works, want %d", mine, want)
	}
	for name, member := range members {
		var copies corev1.ConfigMapList
		if err := member.List(t.Context(), &copies, ctrlclient.InNamespace(ns), ctrlclient.MatchingLabels{names.ManagedLabel: names.ManagedValue}); err != nil {
			t.Fatal(err)
		}
		if len(copies.Items) != before+after {
			t.Errorf("%s has %d, want %d", name, len(copies.Items), before+after)
		}
	}
}
