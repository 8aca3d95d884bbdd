package gateway_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// script is a source of topologies that a test writes.
type script chan topology.Topology

// Run implements topology.Source.
func (s script) Run(ctx context.Context, deliver func(topology.Topology)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-s:
			deliver(t)
		}
	}
}

// yard is a federation of two cells between which a test moves objects by hand.
type yard struct {
	*local.Federation
	t         *testing.T
	namespace string
	cells     []topology.Cell
	stores    []*cellstore.Store
	fences    []*fence.Cell
	direct    []kubernetes.Interface
	scripts   []script
	clients   []kubernetes.Interface
	gateways  []*gatewaytest.Gateway
	moving    *slots.Map
}

// TestMoving moves objects step by step while clients use them.
func TestMoving(t *testing.T) {
	y := newYard(t)
	watcher := y.watch(0)
	y.testStages()
	y.testCreates()
	y.testWrites()
	y.testLateWrite()
	y.testStaleGateway()
	y.testDeleteCollection()
	watcher.expect(y.list(0))
	y.finish()
	watcher.expect(y.list(0))
	watcher.check()
}

func newYard(t *testing.T) *yard {
	y := &yard{t: t, Federation: testenv.StartFederation(t, local.Spec{Cells: 2})}
	y.namespace = gatewaytest.Namespace(t, y.Federation, "moving")
	y.cells = gatewaytest.Topology(t, y.Federation).Cells
	for i, plane := range y.Cells {
		config, err := plane.AdminConfig()
		must(t, err)
		config.QPS = -1
		y.direct = append(y.direct, clientFor(t, config))
		must(t, fence.Install(t.Context(), y.direct[i]))
		store := storetest.For(t, plane)
		must(t, store.RaiseTerm(t.Context(), 1))
		y.stores = append(y.stores, store)
		connected, err := fence.Connect(plane.Name(), y.cells[i].Endpoint)
		must(t, err)
		y.fences = append(y.fences, connected)
	}
	for range 2 {
		source := make(script, 4)
		source <- topology.Topology{Epoch: 1, Ready: true, Cells: y.cells[:1]}
		y.scripts = append(y.scripts, source)
		running := gatewaytest.Start(t, y.Federation, func(o *gateway.Options) { o.Source = source })
		y.gateways, y.clients = append(y.gateways, running), append(y.clients, running.Client(t))
	}
	var err error
	y.moving, err = slots.Compile(2, []slots.Cell{{Name: "cell-a", Weight: 1}, {Name: "cell-b", Weight: 1, State: slots.In}})
	must(t, err)
	return y
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// name returns a name that begins with a prefix and moves from cell-a to cell-b, or stays.
func (y *yard) name(prefix string, moves bool) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if y.moving.Route(slots.Of(y.namespace, name)).Moving() == moves {
			return name
		}
	}
}

func movable(name, value string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"value": value}},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
		}},
	}
}

// create makes a Deployment through a gateway.
func (y *yard) create(gateway int, name string) *appsv1.Deployment {
	y.t.Helper()
	created, err := y.clients[gateway].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(name, "0"), metav1.CreateOptions{})
	must(y.t, err)
	return created
}

func (y *yard) get(gateway int, name string) *appsv1.Deployment {
	y.t.Helper()
	got, err := y.clients[gateway].AppsV1().Deployments(y.namespace).Get(y.t.Context(), name, metav1.GetOptions{})
	must(y.t, err)
	return got
}

// list returns the UIDs of all Deployments by name; that none comes twice is a matter of the list.
func (y *yard) list(gateway int) map[string]string {
	y.t.Helper()
	list, err := y.clients[gateway].AppsV1().Deployments(y.namespace).List(y.t.Context(), metav1.ListOptions{})
	must(y.t, err)
	found := map[string]string{}
	for _, item := range list.Items {
		if _, twice := found[item.Name]; twice {
			y.t.Errorf("%s is listed twice", item.Name)
		}
		found[item.Name] = string(item.UID) + " " + item.Annotations["value"]
	}
	return found
}
