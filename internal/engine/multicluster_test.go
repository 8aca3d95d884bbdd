package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/crds"
	multiclusterv1alpha1 "github.com/cellplane/cellplane/api/multicluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	networkingv1alpha1 "github.com/cellplane/cellplane/api/networking/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

func service(ns, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

func serviceRef(ns, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// slicesIn returns the EndpointSlices of a Service in a member that come from other clusters, or are its own.
func slicesIn(ctx context.Context, member, ns, service string, own bool) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := members[member].List(ctx, &list, ctrlclient.InNamespace(ns), ctrlclient.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
		return (s.Labels[discoveryv1.LabelManagedBy] != names.DispatchedEndpointSlice) != own
	}), nil
}

// addresses returns the sorted addresses of ready endpoints.
func addresses(slicesOf []discoveryv1.EndpointSlice) []string {
	var all []string
	for i := range slicesOf {
		for _, endpoint := range slicesOf[i].Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, false) {
				all = append(all, endpoint.Addresses...)
			}
		}
	}
	slices.Sort(all)
	return all
}

// reaches waits until a member has the n endpoints that a Service has in another member, under some name, and returns their EndpointSlices.
func reaches(t *testing.T, provider, consumer, ns, name, as string, n int) []discoveryv1.EndpointSlice {
	t.Helper()
	var found []discoveryv1.EndpointSlice
	testenv.Eventually(t, fmt.Sprintf("%s has the endpoints of %s", consumer, provider), func(ctx context.Context) (bool, error) {
		own, err := slicesIn(ctx, provider, ns, name, true)
		if err != nil {
			return false, err
		}
		if found, err = slicesIn(ctx, consumer, ns, as, false); err != nil {
			return false, err
		}
		want, have := addresses(own), addresses(found)
		return len(want) == n && slices.Equal(want, have), fmt.Errorf("%s has %v, %s has %v", provider, want, consumer, have)
	})
	return found
}

func noSlices(t *testing.T, member, ns, service string) {
	t.Helper()
	testenv.Eventually(t, "the EndpointSlices of other clusters are removed", func(ctx context.Context) (bool, error) {
		left, err := slicesIn(ctx, member, ns, service, false)
		return err == nil && len(left) == 0, fmt.Errorf("%w: %d left", err, len(left))
	})
}

// N2: the endpoints of the clusters that offer a Service are in those that use it, follow changes, and go with the MultiClusterService, also if that is
// deleted while no engine runs.
func TestMultiClusterService(t *testing.T) {
	ns := namespace(t)
	pods := deployment(ns, "web", 1)
	pods.Spec.Template.Spec.Hostname, pods.Spec.Template.Spec.Subdomain = "web-0", "peers"
	create(t, policy(ns, "p", []string{"Deployment"}, inMembers("member1")), pods)
	mcs := &networkingv1alpha1.MultiClusterService{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: networkingv1alpha1.MultiClusterServiceSpec{
		Types:            []networkingv1alpha1.ExposureType{networkingv1alpha1.ExposureTypeCrossCluster},
		ProviderClusters: []networkingv1alpha1.ClusterSelector{{Name: "member1"}}, ConsumerClusters: []networkingv1alpha1.ClusterSelector{{Name: "member2"}, {Name: "nowhere"}},
	}}
	create(t, mcs)
	if e := event(t, cell, ns, "web", names.EventSyncServiceFailed); !strings.Contains(e.Message, "does not exist") {
		t.Errorf("without a Service: %s", e.Message)
	}
	event(t, cell, ns, "web", names.EventClusterNotFound)
	old, without := clusterOf(t, ns, "apps/v1"), mcs.DeepCopy()
	without.ObjectMeta, without.Spec.ConsumerClusters = metav1.ObjectMeta{Namespace: ns, Name: "old"}, []networkingv1alpha1.ClusterSelector{{Name: old}}
	create(t, without)
	event(t, cell, ns, "old", names.EventAPIIncompatible)
	create(t, service(ns, "web"))

	// 1. The Service is in both, and its endpoints are where they are used.
	there := reaches(t, "member1", "member2", ns, "web", "web", 1)
	until(t, "the Service is in the cluster that uses it", members["member2"], serviceRef(ns, "web"), anything[*corev1.Service])
	slice := &there[0]
	if !strings.HasPrefix(slice.Name, "member1-web-") || slice.Annotations[names.ProvisionClusterAnnotation] != "member1" || len(slice.Ports) != 1 || *slice.Ports[0].Name != "http" {
		t.Errorf("the EndpointSlice is %+v", slice)
	}
	if endpoint := slice.Endpoints[0]; endpoint.NodeName != nil || endpoint.TargetRef != nil {
		t.Errorf("the endpoint names what another cluster does not have: %+v", endpoint)
	}
	event(t, cell, ns, "web", names.EventSyncServiceSucceed)
	claimed := until(t, "the Service is claimed", cell, serviceRef(ns, "web"), func(s *corev1.Service) bool { return s.Labels[names.ClaimedByLabel] == "MultiClusterService" })
	until(t, "the conditions say so", cell, mcs, func(m *networkingv1alpha1.MultiClusterService) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, names.MultiClusterServiceApplied) && meta.IsStatusConditionTrue(m.Status.Conditions, names.MultiClusterServiceDispatched)
	})
	if id := mcs.Labels[names.MultiClusterServicePermanentIDLabel]; id == "" || claimed.Labels[names.MultiClusterServicePermanentIDLabel] != id || claimed.Annotations[names.MultiClusterServiceNameAnnotation] != "web" {
		t.Errorf("the MultiClusterService has the ID %q, the Service %v and %v", id, claimed.Labels, claimed.Annotations)
	}
	managed := until(t, "the binding is the MultiClusterService's", cell, bindingRef(ns, "web-service"), func(b *workv1alpha2.ResourceBinding) bool {
		return b.Labels[names.BindingManagedByLabel] == "MultiClusterService"
	})
	if managed.Labels[names.MultiClusterServicePermanentIDLabel] != mcs.Labels[names.MultiClusterServicePermanentIDLabel] || managed.Annotations[names.MultiClusterServiceNameAnnotation] != "web" {
		t.Errorf("the binding has %v and %v", managed.Labels, managed.Annotations)
	}
	work := until(t, "it has a Work", cell, workRef("member2", "EndpointSlice", ns, slice.Name), anything[*workv1alpha1.Work])
	if work.Labels[names.MultiClusterServiceNameLabel] != "web" || work.Labels[names.MultiClusterServiceNamespaceLabel] != ns || work.Annotations[names.ProvisionClusterAnnotation] != "member1" ||
		work.Labels[names.EndpointSliceManagedByLabel] != "MultiClusterService" {
		t.Errorf("the Work has %v and %v", work.Labels, work.Annotations)
	}

	// 2. A headless Service stays headless, and its pods keep their names. Which traffic its users let in is their own.
	peers := service(ns, "peers")
	peers.Spec.ClusterIP, peers.Spec.Selector = corev1.ClusterIPNone, map[string]string{"app": "web"}
	headless := mcs.DeepCopy()
	headless.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: "peers"}
	traffic := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}}},
	}}
	toAll := policy(ns, "traffic", nil)
	toAll.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}}
	create(t, peers, headless, toAll, traffic)
	there = reaches(t, "member1", "member2", ns, "peers", "peers", 1)
	if _, marked := there[0].Labels[corev1.IsHeadlessService]; !marked || ptr.Deref(there[0].Endpoints[0].Hostname, "") != "web-0" {
		t.Errorf("the EndpointSlice of the headless Service is %+v", there[0])
	}
	until(t, "the headless Service is in the cluster that uses it", members["member2"], serviceRef(ns, "peers"), func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone })
	for name, member := range members {
		wanted := traffic.Spec
		until(t, "the NetworkPolicy is in "+name, member, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}, func(p *networkingv1.NetworkPolicy) bool {
			return apiequality.Semantic.DeepEqual(p.Spec, wanted)
		})
	}

	// 3. They follow.
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](2) })
	reaches(t, "member1", "member2", ns, "web", "web", 2)

	// 4. An engine that starts removes what nobody asks for any more.
	stopEngine()
	if err := cell.Delete(t.Context(), mcs); err != nil {
		t.Fatal(err)
	}
	stopEngine = startEngine(context.Background())
	noSlices(t, "member2", ns, "web")
	until(t, "the claim is removed", cell, serviceRef(ns, "web"), func(s *corev1.Service) bool {
		return s.Labels[names.ClaimedByLabel] == "" && s.Labels[names.MultiClusterServicePermanentIDLabel] == "" && s.Annotations[names.MultiClusterServiceNameAnnotation] == ""
	})
	until(t, "the binding is nobody's", cell, bindingRef(ns, "web-service"), func(b *workv1alpha2.ResourceBinding) bool {
		return b.Labels[names.BindingManagedByLabel] == "" && b.Labels[names.MultiClusterServicePermanentIDLabel] == ""
	})
	until(t, "the Service stays where it was", members["member2"], serviceRef(ns, "web"), anything[*corev1.Service])
}

// clusterOf creates a cluster without an agent that serves some versions only, and returns its name. A taint keeps workloads away.
func clusterOf(t *testing.T, name string, versions ...string) string {
	t.Helper()
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1alpha1.ClusterSpec{
		SyncMode: clusterv1alpha1.Pull, Taints: []corev1.Taint{{Key: "reserved", Effect: corev1.TaintEffectNoSchedule}},
	}}
	create(t, cluster)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), cluster) })
	for _, version := range versions {
		cluster.Status.APIEnablements = append(cluster.Status.APIEnablements, clusterv1alpha1.APIEnablement{GroupVersion: version})
	}
	if err := cell.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return name
}

// N1: an exported Service is reachable where it is imported, also in a cluster that exports it.
func TestServiceImport(t *testing.T) {
	t.Parallel()
	for _, definition := range crds.All() {
		for _, member := range members {
			if definition.Spec.Group != multiclusterv1alpha1.GroupName {
				continue
			}
			definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition.Name}, Spec: *definition.Spec.DeepCopy()}
			if err := member.Create(t.Context(), definition); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
	}
	ns := namespace(t)
	exports := policy(ns, "exports", []string{"Deployment", "Service"}, inMembers("member1"))
	exports.Spec.ResourceSelectors = append(exports.Spec.ResourceSelectors, policyv1alpha1.ResourceSelector{APIVersion: "multicluster.x-k8s.io/v1alpha1", Kind: "ServiceExport"})
	imports := policy(ns, "imports", nil)
	imports.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "multicluster.x-k8s.io/v1alpha1", Kind: "ServiceImport"}}
	export := &multiclusterv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: multiclusterv1alpha1.ServiceExportSpec{ExportedLabels: map[string]string{"team": "a"}}}
	wanted := &multiclusterv1alpha1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: multiclusterv1alpha1.ServiceImportSpec{
		Type: multiclusterv1alpha1.ClusterSetIP, Ports: []multiclusterv1alpha1.ServicePort{{Name: "http", Port: 80}},
	}}
	create(t, exports, imports, deployment(ns, "web", 1), service(ns, "web"), export, wanted)
	for _, member := range []string{"member1", "member2"} {
		there := reaches(t, "member1", member, ns, "web", "derived-web", 1)
		if name := there[0].Name; !strings.HasPrefix(name, "imported-member1-web-") {
			t.Errorf("the EndpointSlice is called %s", name)
		}
		derived := until(t, "the Service is derived", members[member], serviceRef(ns, "derived-web"), func(s *corev1.Service) bool { return s.Labels["team"] == "a" })
		if len(derived.Spec.Selector) > 0 || len(derived.Spec.Ports) != 1 || derived.Spec.Ports[0].Port != 80 {
			t.Errorf("the derived Service is %+v", derived.Spec)
		}
	}

	// What somebody deletes in a member is created again.
	there := reaches(t, "member1", "member2", ns, "web", "derived-web", 1)
	if err := members["member2"].Delete(t.Context(), &there[0]); err != nil {
		t.Fatal(err)
	}
	reaches(t, "member1", "member2", ns, "web", "derived-web", 1)

	if err := cell.Delete(t.Context(), export); err != nil {
		t.Fatal(err)
	}
	noSlices(t, "member2", ns, "derived-web")
	until(t, "the Service stays", members["member2"], serviceRef(ns, "derived-web"), anything[*corev1.Service])
	if err := cell.Delete(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "the Service goes with the import", members["member2"], serviceRef(ns, "derived-web"))
}
