package rollout_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/cli"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/parts"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellWorld is a federation of two cells, with a hub, a gateway and all else, that has the members of the other tests.
type cellWorld struct {
	*testing.T
	federation   *local.Federation
	hub, gateway ctrlclient.Client
	bystanders   []*workload // one in each cell
}

// runProgram makes the test binary the program if it was started with a command.
func runProgram() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(cli.Main(os.Args[1:]))
	}
}

func newCellWorld(t *testing.T) *cellWorld {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "federation")
	settings := local.Settings{Parts: map[string]local.Part{local.Engine: {Flags: map[string]local.Values{"horizontal-pod-autoscaler-sync-period": {"1s"}}}}}
	f, err := local.Open(dir, local.Spec{Cells: 2}, local.Options{Binaries: testenv.Binaries(t), NoFsync: true, Parts: parts.Of(self), Settings: &settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		f.Close()
	})
	if err := f.Start(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	w := &cellWorld{T: t, federation: f}
	w.hub = w.connect(local.HubName)
	w.gateway = w.connect(parts.GatewayContext)
	w.joinMembers()
	for _, name := range []string{"cell-a", "cell-b"} {
		bystander := w.newWorkload("bystander", name)
		bystander.begin(3, intstr.FromInt32(1), intstr.FromInt32(1))
		w.bystanders = append(w.bystanders, bystander)
	}
	return w
}

// config returns an administrator's configuration for a context of the federation's kubeconfig.
func (w *cellWorld) config(context string) *rest.Config {
	w.Helper()
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: local.KubeconfigFile(w.federation.Dir())}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		w.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (w *cellWorld) connect(context string) ctrlclient.Client {
	w.Helper()
	client, err := ctrlclient.New(w.config(context), ctrlclient.Options{Scheme: enginetest.Scheme})
	if err != nil {
		w.Fatal(err)
	}
	return client
}

func (w *cellWorld) joinMembers() {
	w.Helper()
	hub := w.config(local.HubName)
	for _, member := range federation.Members {
		config, err := member.AdminConfig()
		if err != nil {
			w.Fatal(err)
		}
		if _, err := membership.Join(w.Context(), membership.Options{Hub: hub, Member: config, Name: member.Name(), Cells: []string{"cell-a", "cell-b"}}); err != nil {
			w.Fatal(err)
		}
	}
}

// newWorkload returns a workload in a new namespace by which it is stored in a cell.
func (w *cellWorld) newWorkload(prefix, cell string) *workload {
	w.Helper()
	topology := w.topology()
	owners, err := cells.Compile(topology.Generation, &topology.Spec)
	if err != nil {
		w.Fatal(err)
	}
	for i := 0; ; i++ {
		ns := fmt.Sprintf("%s-%s-%d", prefix, cell, i)
		if owners.Cell(owners.Route(slots.Of(ns, "web")).New).Name != cell {
			continue
		}
		err := w.gateway.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			w.Fatal(err)
		}
		if err == nil {
			return &workload{t: w.T, ns: ns, through: w.gateway}
		}
	}
}

func (w *cellWorld) topology() *cellplanev1alpha1.CellTopology {
	w.Helper()
	topology := &cellplanev1alpha1.CellTopology{}
	if err := w.hub.Get(w.Context(), ctrlclient.ObjectKey{Name: cellplanev1alpha1.CellTopologyName}, topology); err != nil {
		w.Fatal(err)
	}
	return topology
}

// change begins a change of the topology.
func (w *cellWorld) change(what string, edit cells.Edit) {
	w.Helper()
	w.Log(what)
	testenv.Eventually(w, what, func(ctx context.Context) (bool, error) {
		topology := w.topology()
		if err := edit(&topology.Spec); err != nil {
			return false, err
		}
		err := w.hub.Update(ctx, topology)
		return err == nil, err
	})
}

// stable waits until no change of the topology is under way.
func (w *cellWorld) stable() {
	w.Helper()
	testenv.Eventually(w, "no change is under way", func(context.Context) (bool, error) {
		topology := w.topology()
		return cells.Running(&topology.Spec) == "" && topology.Status.Phase == cellplanev1alpha1.TopologyStable && topology.Status.ObservedGeneration == topology.Generation,
			fmt.Errorf("the topology is %+v %+v", topology.Spec.Cells, topology.Status)
	})
}

// processes returns those of a cell, with its engine.
func (w *cellWorld) processes(cell string) []*process.Process {
	return slices.DeleteFunc(w.federation.Processes(), func(p *process.Process) bool { return !strings.HasPrefix(p.Name(), cell+"/") })
}

// lose kills a cell with its engine, and fails it over.
func (w *cellWorld) lose(cell string) {
	w.Helper()
	for _, p := range w.processes(cell) {
		if err := p.Halt(); err != nil {
			w.Fatal(err)
		}
	}
	w.change(cell+" is lost and failed over", cells.Fail(cell))
}

// whole has both cells in the topology: one that has left or was lost comes back.
func (w *cellWorld) whole() {
	w.Helper()
	for _, cell := range []string{"cell-a", "cell-b"} {
		present := w.topology().Spec.Cells
		at := slices.IndexFunc(present, func(c cellplanev1alpha1.TopologyCell) bool { return c.Name == cell })
		switch {
		case at < 0:
			w.change(cell+" joins again", cells.Add(cell, 1))
		case present[at].State == cellplanev1alpha1.CellStateFailed:
			for _, p := range w.processes(cell) {
				if err := p.Resurrect(); err != nil {
					w.Fatal(err)
				}
			}
			w.change(cell+" returns", cells.Rejoin(cell))
		}
		w.stable()
	}
}

// backedUp waits until everything that a cell has stored so far is backed up.
func (w *cellWorld) backedUp(cell string) {
	w.Helper()
	asked := time.Now().Truncate(time.Second)
	testenv.Eventually(w, cell+" is backed up", func(ctx context.Context) (bool, error) {
		object := &cellplanev1alpha1.Cell{}
		if err := w.hub.Get(ctx, ctrlclient.ObjectKey{Name: cell}, object); err != nil {
			return false, err
		}
		backup := object.Status.Backup
		return backup != nil && backup.UpToDateAt != nil && backup.UpToDateAt.After(asked), fmt.Errorf("its status is %+v", backup)
	})
}

// takenOver waits until the engine of a cell has taken a workload over in all members.
func (w *cellWorld) takenOver(workload *workload, cell string) {
	w.Helper()
	testenv.Eventually(w, cell+" has taken over "+workload.ns, func(context.Context) (bool, error) {
		for name := range members {
			if has := workload.in(name).Labels[names.CellLabel]; has != cell {
				return false, fmt.Errorf("%s has it from %s", name, has)
			}
		}
		return true, nil
	})
}

// bystanding returns the pods of workloads that are not updated.
func (w *cellWorld) bystanding() map[string]bool {
	all := map[string]bool{}
	for _, bystander := range w.bystanders {
		bystander.t = w.T
		maps.Copy(all, bystander.uids())
	}
	return all
}
