package install

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestNetworkPolicies checks who may connect to whom: all connections that the parts make, and none of the others that are listed.
func TestNetworkPolicies(t *testing.T) {
	type connection struct {
		from, to string // component, or component/control plane
		port     int32
	}
	allowed := []connection{
		{"etcd/hub", "etcd/hub", 2380},
		{"etcd/cell-a", "etcd/cell-a", 2380},
		{"kube-apiserver/hub", "etcd/hub", 2379},
		{"kube-apiserver/cell-a", "etcd/cell-a", 2379},
		{"hub-manager", "etcd/cell-a", 2379}, // moves and backs up objects
		{"hub-manager", "kube-apiserver/hub", 6443},
		{"hub-manager", "kube-apiserver/cell-a", 6443},
		{"gateway", "kube-apiserver/hub", 6443},
		{"gateway", "kube-apiserver/cell-b", 6443},
		{"gateway", "cluster-gateway", 6444},
		{"cluster-gateway", "kube-apiserver/hub", 6443},
		{"cluster-gateway", "gateway", 6443}, // templates
		{"engine/hub", "kube-apiserver/hub", 6443},
		{"engine/cell-a", "kube-apiserver/cell-a", 6443},
		{"engine/cell-a", "kube-apiserver/hub", 6443},
		{"engine/cell-a", "gateway", 6443},
		{"engine/cell-a", "engine/cell-a", 8082}, // notices the death of the leader
		{"hub-controllers", "kube-apiserver/hub", 6443},
		{"federation-controllers", "kube-apiserver/hub", 6443}, // reviews tokens
		{"federation-controllers", "gateway", 6443},
		{"federate", "kube-apiserver/hub", 6443},
		{"federate", "kube-apiserver/cell-b", 6443},
		{"cluster-api", "kube-apiserver/hub", 6443},
		{"cluster-api", "kube-apiserver/cell-b", 6443},
		{"test", "gateway", 6443},
		{"snapshots", "etcd/hub", 2379},
		{"snapshots", "etcd/cell-b", 2379},
		{"snapshots", "kube-apiserver/hub", 6443},
	}
	refused := []connection{
		{"gateway", "etcd/hub", 2379},
		{"gateway", "etcd/cell-a", 2379},
		{"hub-manager", "etcd/hub", 2379},
		{"hub-manager", "etcd/cell-a", 2380},
		{"kube-apiserver/cell-a", "etcd/cell-b", 2379},
		{"etcd/cell-a", "etcd/cell-b", 2380},
		{"engine/cell-a", "kube-apiserver/cell-b", 6443},
		{"engine/cell-a", "engine/cell-b", 8082},
		{"engine/cell-a", "etcd/cell-a", 2379},
		{"cluster-gateway", "kube-apiserver/cell-a", 6443},
		{"engine/cell-a", "cluster-gateway", 6444},
		{"gateway", "etcd/hub", 2381},
		{"gateway", "hub-manager", 8081},
		{"gateway", "engine/hub", 8081},
		{"gateway", "hub-controllers", 10257},
		{"stranger", "kube-apiserver/hub", 6443},
		{"stranger", "cluster-gateway", 6444},
		{"cluster-api", "etcd/cell-a", 2379},
		{"gateway", "cluster-api", 8081},
		{"snapshots", "etcd/hub", 2380},
		{"snapshots", "kube-apiserver/cell-a", 6443},
	}
	for name, text := range map[string]string{
		"open":   "{snapshots: {enabled: true}, clusterAPI: {enabled: true}}",
		"closed": "{snapshots: {enabled: true}, clusterAPI: {enabled: true, from: [{podSelector: {matchLabels: {app: manager}}}]}, gateway: {from: [{podSelector: {matchLabels: {app: client}}}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			policies, pods := networkOf(t, text)
			check := func(c connection, want bool) {
				to, ok := pods[c.to]
				if !ok {
					t.Fatalf("there is no pod %s", c.to)
				}
				if got := permits(t, policies, pods[c.from], to, c.port); got != want {
					t.Errorf("%s to %s at %d: %v, want %v", c.from, c.to, c.port, got, want)
				}
			}
			for _, c := range allowed {
				check(c, true)
			}
			for _, c := range refused {
				check(c, false)
			}
			check(connection{"stranger", "gateway", 6443}, name == "open")
			pods["manager"] = labels.Set{"app": "manager"} // of Cluster API
			check(connection{"manager", "kube-apiserver/cell-a", 6443}, name == "closed")
			check(connection{"manager", "kube-apiserver/hub", 6443}, false)
		})
	}
}

// networkOf returns the NetworkPolicies, and the labels of pods by component and control plane.
func networkOf(t *testing.T, text string) (policies []networkingv1.NetworkPolicy, pods map[string]labels.Set) {
	t.Helper()
	pods = map[string]labels.Set{"stranger": {"app": "stranger"}}
	for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed", Values: values(t, text)}) {
		if template := podOf(t, object); template != nil {
			name := template.Labels["app.kubernetes.io/component"]
			if plane := template.Labels["cellplane.io/control-plane"]; plane != "" {
				name = fmt.Sprintf("%s/%s", name, plane)
			}
			pods[name] = template.Labels
		}
		if object.GetKind() == "NetworkPolicy" {
			var policy networkingv1.NetworkPolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &policy); err != nil {
				t.Fatal(err)
			}
			policies = append(policies, policy)
		}
	}
	return policies, pods
}

// permits applies NetworkPolicies with pod selectors, as Kubernetes documents them.
func permits(t *testing.T, policies []networkingv1.NetworkPolicy, from, to labels.Set, port int32) bool {
	t.Helper()
	selected := false
	for _, policy := range policies {
		if !matches(t, &policy.Spec.PodSelector, to) {
			continue
		}
		selected = true
		for _, rule := range policy.Spec.Ingress {
			if rule.Ports[0].Port.IntVal != port {
				continue
			}
			if len(rule.From) == 0 {
				return true
			}
			for _, peer := range rule.From {
				if peer.PodSelector != nil && matches(t, peer.PodSelector, from) {
					return true
				}
			}
		}
	}
	if !selected {
		t.Errorf("no policy selects %v", to)
	}
	return false
}

func matches(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Matches(set)
}
