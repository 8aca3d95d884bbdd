package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	networkingv1alpha1 "github.com/cellplane/cellplane/api/networking/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

// A MultiClusterService comes to a cell without its Works. Endpoints that have gone meanwhile, and those in a cluster that does not use the Service any more, are removed. Those
// that the new cell does not see yet stay as they are, and so does what is not ours. A cluster that does not answer changes nothing of that: what is removed gets a Work once.
func TestMultiClusterServiceLeftInAnotherCell(t *testing.T) {
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"Deployment"}, inMembers("member1")))
	all := map[string]*networkingv1alpha1.MultiClusterService{}
	for _, name := range []string{"web", "turned"} {
		all[name] = &networkingv1alpha1.MultiClusterService{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: networkingv1alpha1.MultiClusterServiceSpec{
			Types:            []networkingv1alpha1.ExposureType{networkingv1alpha1.ExposureTypeCrossCluster},
			ProviderClusters: []networkingv1alpha1.ClusterSelector{{Name: "member1"}}, ConsumerClusters: []networkingv1alpha1.ClusterSelector{{Name: "member2"}},
		}}
		create(t, deployment(ns, name, 1), service(ns, name), all[name])
	}
	there := reaches(t, "member1", "member2", ns, "web", "web", 1)
	reaches(t, "member1", "member2", ns, "turned", "turned", 1)
	slice := func(name string, labels map[string]string) *discoveryv1.EndpointSlice {
		labels[discoveryv1.LabelServiceName], labels[names.ManagedLabel], labels[names.CellLabel] = "web", names.ManagedValue, federation.Cells[0].Name()
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.9.9.9"}}},
		}
	}
	ref := func(name string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	}
	createIn(t, members["member1"], slice("web-extra", map[string]string{discoveryv1.LabelManagedBy: "test"}))
	until(t, "the other endpoints are in member2", members["member2"], ref("member1-web-extra"), anything[*discoveryv1.EndpointSlice])

	// Both move. Member1 loses endpoints, and the clusters of one Service change. The copy of the other belongs to another cell for member1, and is not seen at first.
	stopEngine()
	restarted := false
	defer func() {
		if !restarted {
			stopEngine = startEngine(context.Background())
		}
	}()
	for _, name := range []string{"web", "turned"} {
		var works workv1alpha1.WorkList
		if err := cell.List(t.Context(), &works, ctrlclient.MatchingLabels{names.MultiClusterServiceNamespaceLabel: ns, names.MultiClusterServiceNameLabel: name}); err != nil {
			t.Fatal(err)
		}
		if len(works.Items) == 0 {
			t.Fatal("there are no Works")
		}
		for i := range works.Items {
			edit(t, cell, &works.Items[i], func(w *workv1alpha1.Work) { w.Finalizers = nil })
			if err := cell.Delete(t.Context(), &works.Items[i]); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
	}
	edit(t, cell, all["turned"], func(m *networkingv1alpha1.MultiClusterService) {
		m.Spec.ProviderClusters, m.Spec.ConsumerClusters = m.Spec.ConsumerClusters, m.Spec.ProviderClusters
	})
	if err := members["member1"].Delete(t.Context(), ref("web-extra")); err != nil {
		t.Fatal(err)
	}
	theirs := slice("member1-web-theirs", map[string]string{discoveryv1.LabelManagedBy: names.DispatchedEndpointSlice, names.WorkPermanentIDLabel: "theirs"})
	theirs.Annotations = map[string]string{names.TemplateUIDAnnotation: string(all["web"].UID), names.ProvisionClusterAnnotation: "member1"}
	createIn(t, members["member2"], theirs)
	edit(t, members["member1"], serviceRef(ns, "web"), func(s *corev1.Service) { s.Labels[names.CellLabel] = "cell-x" })
	testenv.Eventually(t, "the EndpointSlice says so", func(ctx context.Context) (bool, error) {
		own, err := slicesIn(ctx, "member1", ns, "web", true)
		return err == nil && len(own) == 1 && own[0].Labels[names.CellLabel] == "cell-x", fmt.Errorf("%w: %v", err, own)
	})
	manager, err := federation.Process("member1/" + kubebin.KubeControllerManager)
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Halt(); err != nil {
		t.Fatal(err)
	}
	resurrected := false
	resurrect := func() {
		if !resurrected {
			resurrected = true
			if err := manager.Resurrect(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(resurrect)
	unrelated := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "down-" + ns}, Spec: clusterv1alpha1.ClusterSpec{
		SyncMode: clusterv1alpha1.Push, Taints: []corev1.Taint{{Key: "reserved", Effect: corev1.TaintEffectNoSchedule}},
	}}
	create(t, unrelated)
	t.Cleanup(func() {
		if err := cell.Delete(context.Background(), unrelated); err != nil {
			t.Error(err)
		}
	})
	times := createdTimes(t, workRef("member2", "EndpointSlice", ns, "member1-web-extra"))
	restarted, stopEngine = true, startEngine(context.Background())

	untilGone(t, "endpoints that have gone are removed", members["member2"], ref("member1-web-extra"))
	noSlices(t, "member2", ns, "turned")
	untilGone(t, "their Work is removed", cell, workRef("member2", "EndpointSlice", ns, "member1-web-extra"))
	missing(t, "endpoints that this cell does not see have a Work", cell, workRef("member2", "EndpointSlice", ns, there[0].Name))
	resurrect()
	until(t, "the other endpoints have a Work again", cell, workRef("member2", "EndpointSlice", ns, there[0].Name), anything[*workv1alpha1.Work])
	now := until(t, "they are marked", members["member2"], ref(there[0].Name), anything[*discoveryv1.EndpointSlice])
	if now.UID != there[0].UID {
		t.Error("endpoints that are needed were removed meanwhile")
	}
	until(t, "what is not ours stays", members["member2"], ref("member1-web-theirs"), func(s *discoveryv1.EndpointSlice) bool { return s.DeletionTimestamp == nil })
	if n := times.Load(); n != 1 {
		t.Errorf("the Work of endpoints that have gone was created %d times", n)
	}
}

// createdTimes counts how often a Work is created until the test ends.
func createdTimes(t *testing.T, work *workv1alpha1.Work) *atomic.Int32 {
	t.Helper()
	events, err := cell.Watch(t.Context(), &workv1alpha1.WorkList{}, ctrlclient.InNamespace(work.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	count := &atomic.Int32{}
	go func() {
		for event := range events.ResultChan() {
			if of, is := event.Object.(*workv1alpha1.Work); is && event.Type == watch.Added && of.Name == work.Name {
				count.Add(1)
			}
		}
	}()
	return count
}
