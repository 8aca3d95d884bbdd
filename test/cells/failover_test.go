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

// unsaved is the name prefix of an object that is written to a cell just before it is lost, and is in no backup. It is in a namespace that
// no informer watches.
const unsaved = "unsaved"

// testCutOff pauses all processes of a cell until it is failed over automatically, and then resumes them: members must refuse its engine,
// and it must refuse gateways.
func (w *world) testCutOff(t *testing.T) {
	const lost = "cell-c"
	w.pauseWriting()
	w.waitBackupComplete()
	w.killHubManager() // so that nothing more is backed up
	w.writeTo(lost)
	w.signal(lost+"/", "pause")
	w.failOverAutomatically(lost)
	w.waitGatewayTopology() // before that, the outcome of writes to the cell would be unknown
	w.resumeWriting()
	w.update("nginx:6")
	w.waitRelisted()

	w.signal(lost+"/", "resume")
	// Its engine does not know of the failover. Change a workload there, so that it tries to apply it.
	deployment := w.ownedBy(lost)
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"nginx:forbidden"}]}}}}`)
	testenv.Eventually(t, "the cell answers again", func(ctx context.Context) (bool, error) {
		_, err := w.cellClient(lost).AppsV1().Deployments(namespace).Patch(ctx, deployment, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err == nil, err
	})
	testenv.Eventually(t, "the engine of the cell has failed to apply the change", func(ctx context.Context) (bool, error) {
		return w.workRefused(ctx, lost, deployment)
	})
	w.checkImages("nginx:6")
	w.waitRefusedByMembers(lost)
	w.waitFenced(lost)
}

// failOverAutomatically runs a hub manager with automatic failover, in place of the halted one, until it has failed a cell over.
func (w *world) failOverAutomatically(cell string) {
	w.Helper()
	defer w.logDuration("automatic failover")()
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
	testenv.Eventually(w, cell+" is marked as failed", func(ctx context.Context) (bool, error) {
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
	w.runChange("cells", "watch")
}

// testSalvage lets the cell join again: objects that only it had are kept as files and are not restored.
func (w *world) testSalvage(t *testing.T) {
	w.runChange("cells", "rejoin", "cell-c")
	files, err := filepath.Glob(filepath.Join(w.dir, "hub-manager", "state", "cell-c-*", "*"+unsaved+"*.yaml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files are kept, want 1 (%v)", len(files), err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(content), "text: unsaved") {
		t.Errorf("the kept file contains %q (%v)", content, err)
	}
	events := w.run("kubectl", "--context", "hub", "get", "events", "-A", "-o", "jsonpath={.items[*].message}")
	if !strings.Contains(events, unsaved) {
		t.Errorf("no event names the object: %s", events)
	}
	list, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range list.Items {
		if strings.HasPrefix(object.Name, unsaved) {
			t.Errorf("%s was restored", object.Name)
		}
	}
	w.checkNoRelist()
	w.update("nginx:7")
}

// bulk is the number of objects that make a change last long enough.
const bulk = 1000

// progressLine is the output of a command while objects move: moved and total objects, rate and remaining time.
var progressLine = regexp.MustCompile(`moving +\[=* *\] \d+/[1-9]\d*, \d+/s, \S+ to go, \d+ requests held`)

// testFailoverDuringAChange kills the cell that objects move to. It is paused before, so that the change cannot end too early.
func (w *world) testFailoverDuringAChange(t *testing.T) {
	w.createBulk()
	w.pauseWriting()
	w.waitBackupComplete()
	w.run("kubectl", "--context", "hub", "patch", "celltopology", "default", "--type=merge", "-p", `{"spec":{"migration":{"window":1}}}`)
	w.runInterrupted(progressLine, "cells", "drain", "cell-c")
	w.signal("cell-b/kube-apiserver", "pause")
	w.checkMoveReported()
	frozen := w.frozenIn("cell-c")
	w.killHubManager()
	w.signal("cell-b/kube-apiserver", "resume")
	w.checkHeldWriteReported(frozen)
	if phase := w.topology(t.Context()).Status.Phase; phase != v1alpha1.TopologyMoving {
		t.Fatalf("the change ended before the cell was killed: %s", phase)
	}
	w.signal("cell-b/", "halt")
	w.signal("hub-manager", "resurrect")
	w.runChange("cells", "failover", "cell-b")
	w.waitGatewayTopology()
	w.resumeWriting()
	w.update("nginx:8")
	w.waitRelisted()
	w.checkBulk()
	if left := w.topology(t.Context()).Spec.Cells; len(left) != 2 {
		t.Errorf("cell-c has not left: %+v", left)
	}
	w.waitReadToEnd("cell-c")
	w.run("kubectl", "--context", "hub", "patch", "celltopology", "default", "--type=merge", "-p", `{"spec":{"migration":{"window":64}}}`)
	w.runChange("cells", "watch")
}

// frozenIn returns the path of an object that is frozen in a cell.
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

// testSecondFailover lets the cells join again and kills two of them one after the other, so that objects are taken over twice.
func (w *world) testSecondFailover(*testing.T) {
	w.signal("cell-b/", "resurrect")
	w.runChange("cells", "rejoin", "cell-b")
	w.addByManifests("cell-c")
	w.checkNoRelist()
	w.pauseWriting()
	for _, lost := range []string{"cell-c", "cell-b"} {
		w.waitBackupComplete()
		w.signal(lost+"/", "halt")
		w.runChange("cells", "failover", lost)
		w.waitGatewayTopology()
	}
	w.resumeWriting()
	w.update("nginx:9")
	w.waitRelisted()
	w.checkBulk()
}

func (w *world) createBulk() {
	w.Helper()
	defer w.logDuration("create bulk objects")()
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
		w.Errorf("%d of %d bulk objects exist", found, bulk)
	}
}

func (w *world) topology(ctx context.Context) *v1alpha1.CellTopology {
	w.Helper()
	topology := &v1alpha1.CellTopology{}
	w.getFromHub(ctx, "celltopologies/"+v1alpha1.CellTopologyName, topology)
	return topology
}

func (w *world) cell(ctx context.Context, name string) *v1alpha1.Cell {
	w.Helper()
	cell := &v1alpha1.Cell{}
	w.getFromHub(ctx, "cells/"+name, cell)
	return cell
}

// getFromHub reads an object of the hub.
func (w *world) getFromHub(ctx context.Context, path string, into any) {
	w.Helper()
	body, err := w.hub.CoreV1().RESTClient().Get().AbsPath("/apis/cellplane.io/v1alpha1/" + path).DoRaw(ctx)
	if err != nil {
		w.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		w.Fatal(err)
	}
}

// writeTo creates an object through the gateway that is stored in a cell. It tries names until one is.
func (w *world) writeTo(cell string) {
	w.Helper()
	for i := 0; ; i++ {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", unsaved, i)}, Data: map[string]string{"text": "unsaved"}}
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

// ownedBy returns a Deployment that a cell stores and has not moved away.
func (w *world) ownedBy(cell string) (name string) {
	w.Helper()
	defer w.logDuration("the cell answers")()
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

// workRefused reports whether the engine of a cell has tried and failed to apply the forbidden image.
func (w *world) workRefused(ctx context.Context, cell, deployment string) (bool, error) {
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
	return false, fmt.Errorf("no Work has the image yet")
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

// waitRefusedByMembers waits until members refuse the identity of a cell, or the cell has no credentials any more.
func (w *world) waitRefusedByMembers(cell string) {
	w.Helper()
	defer w.logDuration("members refuse the cell")()
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

// waitIdentitiesRemoved waits until the hub has no credentials of a cell for members any more.
func (w *world) waitIdentitiesRemoved(cell string) {
	w.Helper()
	defer w.logDuration("identities are removed")()
	testenv.Eventually(w, cell+" has no identity in any member", func(ctx context.Context) (bool, error) {
		list, err := w.hub.CoreV1().Secrets(names.ClusterNamespace).List(ctx, metav1.ListOptions{LabelSelector: names.CellLabel + "=" + cell})
		return err == nil && len(list.Items) == 0, err
	})
}

// waitFenced waits until a failed cell refuses requests that were routed by an older topology.
func (w *world) waitFenced(cell string) {
	w.Helper()
	defer w.logDuration("the cell is fenced")()
	testenv.Eventually(w, cell+" refuses older epochs", func(ctx context.Context) (bool, error) {
		lease, err := w.cellClient(cell).CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "cellplane-fence", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, value := range lease.Annotations {
			if value == fmt.Sprint(w.topology(ctx).Generation) {
				return true, nil
			}
		}
		return false, fmt.Errorf("its fence is at %v", lease.Annotations)
	})
}

func (w *world) cellClient(cell string) kubernetes.Interface {
	config := w.context(cell)
	config.Timeout = 10 * time.Second
	return kubernetes.NewForConfigOrDie(config)
}
