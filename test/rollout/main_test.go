// Package rollout_test tests rolling updates over three real members: the bounds of a template hold for all of them together.
package rollout_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

var (
	federation *local.Federation
	cell       ctrlclient.WithWatch
	cellConfig *rest.Config
	members    = map[string]ctrlclient.WithWatch{}
)

// engineProcess makes the test binary run an engine with the kubeconfig that it names.
const engineProcess = "CELLPLANE_TEST_ENGINE"

func TestMain(m *testing.M) {
	kubectltest.Run()
	runProgram()
	if kubeconfig := os.Getenv(engineProcess); kubeconfig != "" {
		runEngine(kubeconfig)
		return
	}
	testenv.ConfiguredFederationMain(local.Spec{WithoutHub: true, Cells: 1, Members: 3, Nodes: 2}, maxUnavailableOfStatefulSets(), func(ctx context.Context, started *local.Federation) (int, error) {
		federation = started
		var err error
		if cell, cellConfig, err = enginetest.Connect(federation.Cells[0]); err != nil {
			return 1, err
		}
		if err := enginetest.Prepare(ctx, cell); err != nil {
			return 1, err
		}
		for _, member := range federation.Members {
			if members[member.Name()], err = enginetest.Join(ctx, member, cell); err != nil {
				return 1, err
			}
		}
		return m.Run(), nil
	})
}

// maxUnavailableOfStatefulSets turns a feature on that Kubernetes has off by default. One member does not have it: it drops the field.
func maxUnavailableOfStatefulSets() local.Settings {
	on := local.Part{Flags: map[string]local.Values{"feature-gates": {"MaxUnavailableStatefulSet=true"}}}
	settings := local.Settings{Parts: map[string]local.Part{"cell-a/" + kubebin.KubeAPIServer: on}}
	for _, member := range []string{"member1", "member2"} {
		settings.Parts[member+"/"+kubebin.KubeAPIServer], settings.Parts[member+"/"+kubebin.KubeControllerManager] = on, on
	}
	return settings
}

// withoutPlan runs an engine that updates all clusters at once. Set for all tests, it shows that they notice.
const withoutPlan = "ENGINE_FEDERATED_ROLLOUTS=false"

// alone is the name by which members know the cell. The cells of the [cellWorld] have others.
const alone = "alone"

// runEngine runs an engine until it is killed.
func runEngine(kubeconfig string) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		err = (&engine.Config{Cell: alone, Config: config, FederatedRollouts: os.Getenv("ENGINE_FEDERATED_ROLLOUTS") != "false"}).Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// startEngine runs an engine in a process of its own. The function kills it.
func startEngine(t *testing.T, env ...string) (kill func()) {
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
	cmd.Env = append(append(os.Environ(), engineProcess+"="+kubeconfig), env...)
	if os.Getenv("ENGINE_VERBOSE") != "" {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return kill
}
