package cells

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/ports"
	"github.com/cellplane/cellplane/internal/testenv"
)

// unlucky begins the name of what is written to a cell just before it is lost, and reaches no backup. Nobody watches it: it is in another
// namespace.
const unlucky = "unlucky"

// testCutOff pauses a cell as a whole, has it given up without being told to, goes on without it and lets it wake up: it must not get
// through to members, nor gateways to it.
func (w *world) testCutOff(t *testing.T) {
	const lost = "cell-c"
	w.pauseWriting()
	w.settleBackup()
	w.killHubManager() // so that nothing more is backed up
	w.writeTo(lost)
	w.signal(lost+"/", "pause")
	w.givenUpByItself(lost)
	w.gatewayKnows() // until then it may send writes to the cell, and nobody could tell what became of them
	w.resumeWriting()
	w.update("nginx:6")
	w.beganAnew()

	w.signal(lost+"/", "resume")
	// Its engine believes that all is as before. Somebody changes a workload there, and it does what it can.
	deployment := w.ownedBy(lost)
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"nginx:forbidden"}]}}}}`)
	testenv.Eventually(t, "the cell that was cut off is awake", func(ctx context.Context) (bool, error) {
		_, err := w.cellClient(lost).AppsV1().Deployments(namespace).Patch(ctx, deployment, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err == nil, err
	})
	testenv.Eventually(t, "the engine of the cell that was cut off has tried and failed", func(ctx context.Context) (bool, error) {
		return w.refusedWork(ctx, lost, deployment)
	})
	w.checkImages("nginx:6")
	w.refusedByMembers(lost)
	w.closed(lost)
}

// givenUpByItself lets a hub manager do without the operator, in the place of the one that is halted.
func (w *world) givenUpByItself(cell string) {
	w.Helper()
	defer w.took("is given up by itself")()
	port, err := ports.Choose()
	if err != nil {
		w.Fatal(err)
	}
	defer ports.Release(port)
	manager := w.command(w.Context(), "hub-manager", "--kubeconfig="+filepath.Join(w.dir, "hub", "hub-manager.kubeconfig"),
		"--state-dir="+filepath.Join(w.dir, "hub-manager", "state"), fmt.Sprintf("--bind-address=127.0.0.1:%d", port), "--auto-failover-after=30s")
	if err := manager.Start(); err != nil {
		w.Fatal(err)
	}
	testenv.Eventually(w, cell+" is given up", func(ctx context.Context) (bool, error) {
		return slices.ContainsFunc(w.topology(ctx).Spec.Cells, func(c v1alpha1.TopologyCell) bool {
			return c.Name == cell && c.State == v1alpha1.CellStateFailed
		}), nil
	})
	if err := manager.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	_ = manager.Wait() // it was killed
	w.releaseLease()
	w.signal("hub-manager", "resurrect")
	w.completes("cells", "watch")
}

// testSalvage lets the cell return that was cut off: what only it had is kept as files, and nothing of it comes back.
func (w *world) testSalvage(t *testing.T) {
	w.completes("cells", "rejoin", "cell-c")
	files, err := filepath.Glob(filepath.Join(w.dir, "hub-manager", "state", "cell-c-*", "*"+unlucky+"*.yaml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files are kept (%v)", len(files), err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(content), "text: nobody knows") {
		t.Errorf("what was kept reads %q (%v)", content, err)
	}
	events := w.run("kubectl", "--context", "hub", "get", "events", "-A", "-o", "jsonpath={.items[*].message}")
	if !strings.Contains(events, unlucky) {
		t.Errorf("no event speaks of it: %s", events)
	}
	list, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range list.Items {
		if strings.HasPrefix(object.Name, unlucky) {
			t.Errorf("%s is back", object.Name)
		}
	}
	w.noDisturbance()
	w.update("nginx:7")
}

// bulk is how many objects make a change last.
const bulk = 1000

// onItsWay is what a command shows while objects move: how many of how many, how fast and how long it takes.
var onItsWay = regexp.MustCompile(`moving +\[=* *\] \d+/[1-9]\d*, \d+/s, \S+ to go, \d+ requests held`)

// testFailoverDuringAChange kills the cell that others move to. It stops to answer first, so that the change is sure to be under way.
func (w *world) testFailoverDuringAChange(t *testing.T) {
	w.createBulk()
	w.pauseWriting()
	w.settleBackup()
	w.run("kubectl", "--context", "hub", "patch", "celltopology", "default", "--type=merge", "-p", `{"spec":{"migration":{"window":1}}}`)
	w.interrupted(onItsWay, "cells", "drain", "cell-c")
	w.signal("cell-b/kube-apiserver", "pause")
	w.toldOfMove()
	frozen := w.frozenIn("cell-c")
	w.killHubManager()
	w.signal("cell-b/kube-apiserver", "resume")
	w.toldOfHeld(frozen)
	if phase := w.topology(t.Context()).Status.Phase; phase != v1alpha1.TopologyMoving {
		t.Fatalf("the change was over before anything could happen to it: %s", phase)
	}
	w.signal("cell-b/", "halt")
	w.signal("hub-manager", "resurrect")
	w.completes("cells", "failover", "cell-b")
	w.gatewayKnows()
	w.resumeWriting()
	w.update("nginx:8")
	w.beganAnew()
	w.checkBulk()
	if left := w.topology(t.Context()).Spec.Cells; len(left) != 2 {
		t.Errorf("cell-c has not left: %+v", left)
	}
	w.readToItsEnd("cell-c")
	w.run("kubectl", "--context", "hub", "patch", "celltopology", "default", "--type=merge", "-p", `{"spec":{"migration":{"window":64}}}`)
	w.completes("cells", "watch")
}

// frozenIn returns the path of an object that a cell has frozen, to be moved on.
func (w *world) frozenIn(cell string) (path string) {
	w.Helper()
	client := dynamic.NewForConfigOrDie(w.context(cell))
	kinds := append(slices.Collect(maps.Keys(manifests)), deployments, corev1.SchemeGroupVersion.WithResource("configmaps"))
	testenv.Eventually(w, cell+" has a frozen object", func(ctx context.Context) (bool, error) {
		for _, kind := range kinds {
			list, err := client.Resource(kind).List(ctx, metav1.ListOptions{LabelSelector: names.RebalanceStatusLabel + "=" + names.RebalanceMigrating})
			if err != nil {
				return false, err
			}
			if len(list.Items) > 0 {
				prefix := "/apis/" + kind.Group
				if kind.Group == "" {
					prefix = "/api"
				}
				path = fmt.Sprintf("%s/%s/namespaces/%s/%s/%s", prefix, kind.Version, list.Items[0].GetNamespace(), kind.Resource, list.Items[0].GetName())
				return true, nil
			}
		}
		return false, nil
	})
	return path
}

// testSecondFailover brings the cells back, and kills two of them one after the other, so that what one has taken over is taken over again.
func (w *world) testSecondFailover(*testing.T) {
	w.signal("cell-b/", "resurrect")
	w.completes("cells", "rejoin", "cell-b")
	w.addByManifests("cell-c")
	w.noDisturbance()
	w.pauseWriting()
	for _, lost := range []string{"cell-c", "cell-b"} {
		w.settleBackup()
		w.signal(lost+"/", "halt")
		w.completes("cells", "failover", lost)
		w.gatewayKnows()
	}
	w.resumeWriting()
	w.update("nginx:9")
	w.beganAnew()
	w.checkBulk()
}

func (w *world) createBulk() {
	w.Helper()
	defer w.took("many objects are made")()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range bulk {
		group.Go(func() error {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bulk-%d", i)}, Data: map[string]string{"n": "0"}}
			_, err := w.gateway.CoreV1().ConfigMaps(namespace).Create(w.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		w.Fatal(err)
	}
}

func (w *world) checkBulk() {
	w.Helper()
	list, err := w.gateway.CoreV1().ConfigMaps(namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	found := 0
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "bulk-") {
			found++
		}
	}
	if found != bulk {
		w.Errorf("%d of %d objects are there", found, bulk)
	}
}

func (w *world) topology(ctx context.Context) *v1alpha1.CellTopology {
	w.Helper()
	topology := &v1alpha1.CellTopology{}
	w.ofHub(ctx, "celltopologies/"+v1alpha1.CellTopologyName, topology)
	return topology
}

func (w *world) cell(ctx context.Context, name string) *v1alpha1.Cell {
	w.Helper()
	cell := &v1alpha1.Cell{}
	w.ofHub(ctx, "cells/"+name, cell)
	return cell
}

// ofHub reads an object of the hub.
func (w *world) ofHub(ctx context.Context, path string, into any) {
	w.Helper()
	body, err := w.hub.CoreV1().RESTClient().Get().AbsPath("/apis/cellplane.io/v1alpha1/" + path).DoRaw(ctx)
	if err != nil {
		w.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		w.Fatal(err)
	}
}

// writeTo creates an object in a cell through the gateway, and removes those that turn out to be elsewhere.
func (w *world) writeTo(cell string) {
	w.Helper()
	for i := 0; ; i++ {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", unlucky, i)}, Data: map[string]string{"text": "nobody knows"}}
		if _, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(w.Context(), object, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
		_, err := w.cellClient(cell).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(w.Context(), object.Name, metav1.GetOptions{})
		if err == nil {
			return
		}
		if !apierrors.IsNotFound(err) {
			w.Fatal(err)
		}
		if err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(w.Context(), object.Name, metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

// ownedBy returns a Deployment that a cell takes for its own.
func (w *world) ownedBy(cell string) (name string) {
	w.Helper()
	defer w.took("the cell answers")()
	testenv.Eventually(w, cell+" answers", func(ctx context.Context) (bool, error) {
		list, err := w.cellClient(cell).AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: "!" + names.RebalanceStatusLabel})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		name = list.Items[0].Name
		return true, nil
	})
	return name
}

// refusedWork reports whether the engine of a cell has tried to carry what nobody should have, and could not.
func (w *world) refusedWork(ctx context.Context, cell, deployment string) (bool, error) {
	body, err := w.cellClient(cell).CoreV1().RESTClient().Get().AbsPath("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-member1/works").DoRaw(ctx)
	if err != nil {
		return false, err
	}
	var list struct {
		Items []struct {
			Spec   json.RawMessage `json:"spec"`
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return false, err
	}
	for _, work := range list.Items {
		if !strings.Contains(string(work.Spec), "nginx:forbidden") || !strings.Contains(string(work.Spec), deployment) {
			continue
		}
		for _, condition := range work.Status.Conditions {
			if condition.Type == names.WorkApplied && condition.Status == metav1.ConditionFalse {
				return true, nil
			}
		}
		return false, fmt.Errorf("its conditions are %v", work.Status.Conditions)
	}
	return false, fmt.Errorf("no Work carries it yet")
}

func (w *world) checkImages(image string) {
	w.Helper()
	for i, member := range w.members {
		deployments, err := member.AppsV1().Deployments(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		for _, d := range deployments.Items {
			if got := d.Spec.Template.Spec.Containers[0].Image; got != image {
				w.Errorf("%s in member%d has image %s, want %s", d.Name, i+1, got, image)
			}
		}
	}
}

// refusedByMembers waits until the identity of a cell is refused in the members. The cell may have been told to forget it.
func (w *world) refusedByMembers(cell string) {
	w.Helper()
	defer w.took("members refuse the cell")()
	for i := range w.members {
		member := fmt.Sprintf("member%d", i+1)
		testenv.Eventually(w, cell+" has lost its identity in "+member, func(ctx context.Context) (bool, error) {
			secret, err := w.cellClient(cell).CoreV1().Secrets(names.ClusterNamespace).Get(ctx, membership.SecretName(member, cell), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			if err != nil {
				return false, err
			}
			config := rest.CopyConfig(w.context(member))
			config.CertData, config.CertFile, config.KeyData, config.KeyFile = nil, "", nil, ""
			config.BearerToken = string(secret.Data["token"])
			patch := []byte(`{"metadata":{"annotations":{"forbidden":"yes"}}}`)
			_, err = kubernetes.NewForConfigOrDie(config).AppsV1().Deployments(namespace).Patch(ctx, workload(0), types.MergePatchType, patch, metav1.PatchOptions{})
			return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err), nil
		})
	}
}

// withdrawn waits until nobody has credentials of a cell for members any more.
func (w *world) withdrawn(cell string) {
	w.Helper()
	defer w.took("identities are withdrawn")()
	testenv.Eventually(w, cell+" has no identity in any member", func(ctx context.Context) (bool, error) {
		list, err := w.hub.CoreV1().Secrets(names.ClusterNamespace).List(ctx, metav1.ListOptions{LabelSelector: names.CellLabel + "=" + cell})
		return err == nil && len(list.Items) == 0, err
	})
}

// closed waits until a failed cell refuses whoever routes by an older map.
func (w *world) closed(cell string) {
	w.Helper()
	defer w.took("the cell is closed")()
	testenv.Eventually(w, cell+" refuses older maps", func(ctx context.Context) (bool, error) {
		lease, err := w.cellClient(cell).CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "cellplane-fence", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, value := range lease.Annotations {
			if value == fmt.Sprint(w.topology(ctx).Generation) {
				return true, nil
			}
		}
		return false, fmt.Errorf("its fence says %v", lease.Annotations)
	})
}

func (w *world) cellClient(cell string) kubernetes.Interface {
	config := w.context(cell)
	config.Timeout = 10 * time.Second
	return kubernetes.NewForConfigOrDie(config)
}
