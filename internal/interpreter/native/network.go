package native

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

var service = kinds.Kind{
	Retain:          retainService,
	AggregateStatus: aggregateService,
	ReflectStatus:   kinds.ReflectFields("loadBalancer"),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		balanced, err := isLoadBalancer(obj)
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		if !balanced {
			return workv1alpha2.ResourceHealthy, nil
		}
		return addressed(obj)
	},
}

var ingress = kinds.Kind{
	AggregateStatus: kinds.Aggregate(mergeLoadBalancer),
	ReflectStatus:   kinds.ReflectWhole,
	Health:          addressed,
	Dependencies:    ingressDependencies,
}

var serviceImport = kinds.Kind{Dependencies: serviceImportDependencies}

func isLoadBalancer(obj *unstructured.Unstructured) (bool, error) {
	kind, _, err := fields.String(obj.Object, "spec", "type")
	return kind == "LoadBalancer", err
}

// retainService keeps the addresses and ports a member allocated.
func retainService(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind, _, err := fields.String(desired.Object, "spec", "type")
	if err != nil {
		return nil, err
	}
	if kind == "ExternalName" {
		return desired, nil
	}
	var paths []kinds.Path
	for _, name := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort"} {
		if value, _, err := fields.Lookup(observed.Object, "spec", name); err != nil {
			return nil, err
		} else if value != nil && value != "" && value != int64(0) {
			paths = append(paths, kinds.Path{"spec", name})
		}
	}
	retained, err := kinds.RetainAt(paths...)(desired, observed)
	if err != nil || kind != "NodePort" && kind != "LoadBalancer" {
		return retained, err
	}
	return retainNodePorts(retained, observed)
}

// retainNodePorts keeps a port's node port where the template leaves the choice to the member.
func retainNodePorts(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	wanted, err := fields.Objects(desired.Object, "spec", "ports")
	if err != nil || len(wanted) == 0 {
		return desired, err
	}
	allocated, err := fields.Objects(observed.Object, "spec", "ports")
	if err != nil {
		return nil, err
	}
	ports := make([]any, len(wanted))
	for i, port := range wanted {
		ports[i] = port
		for _, other := range allocated {
			if port["nodePort"] == nil && other["nodePort"] != nil && samePort(port, other) {
				port = maps.Clone(port)
				port["nodePort"] = other["nodePort"]
				ports[i] = port
				break
			}
		}
	}
	root, err := fields.With(desired.Object, ports, "spec", "ports")
	if err != nil {
		return nil, err
	}
	return fields.Object(root), nil
}

func samePort(a, b map[string]any) bool {
	protocol := func(port map[string]any) string {
		if p, _ := port["protocol"].(string); p != "" {
			return p
		}
		return "TCP"
	}
	m, okA := fields.AsInt(a["port"])
	n, okB := fields.AsInt(b["port"])
	return okA && okB && m == n && protocol(a) == protocol(b)
}

func aggregateService(template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	balanced, err := isLoadBalancer(template)
	if err != nil || !balanced {
		return template, err
	}
	return kinds.Aggregate(mergeLoadBalancer)(template, items)
}

// mergeLoadBalancer lists the addresses of all members once each, in a fixed order.
func mergeLoadBalancer(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	type entry struct {
		key   string
		value map[string]any
	}
	var entries []entry
	for _, m := range members {
		list, err := fields.Objects(m.Status, "loadBalancer", "ingress")
		if err != nil {
			return m.Failed(err)
		}
		for _, address := range list {
			key, err := json.Marshal([]any{address["ip"], address["hostname"], address})
			if err != nil {
				return m.Failed(err)
			}
			entries = append(entries, entry{string(key), address})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.key == b.key })
	balancer := map[string]any{}
	if len(entries) > 0 {
		list := make([]any, len(entries))
		for i := range entries {
			list[i] = entries[i].value
		}
		balancer["ingress"] = list
	} else if current, _, err := fields.Map(status, "loadBalancer"); err != nil {
		return fields.Under("status", err)
	} else if len(current) == 0 {
		return nil
	}
	status["loadBalancer"] = balancer
	return nil
}

// addressed is the health of what clients reach from outside: it has an address.
func addressed(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	list, err := fields.Objects(obj.Object, "status", "loadBalancer", "ingress")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	for _, address := range list {
		host, _ := address["hostname"].(string)
		ip, _ := address["ip"].(string)
		if host != "" || ip != "" {
			return workv1alpha2.ResourceHealthy, nil
		}
	}
	return workv1alpha2.ResourceUnhealthy, nil
}

func ingressDependencies(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	refs := podspec.References{Namespace: obj.GetNamespace()}
	tls, err := fields.Objects(obj.Object, "spec", "tls")
	if err != nil {
		return nil, err
	}
	for i, entry := range tls {
		if err := refs.AddField(podspec.Secret, entry, "secretName"); err != nil {
			return nil, fields.Under("spec.tls"+fields.Index(i), err)
		}
	}
	if err := refs.AddField(podspec.Service, obj.Object, "spec", "defaultBackend", "service", "name"); err != nil {
		return nil, err
	}
	rules, err := fields.Objects(obj.Object, "spec", "rules")
	if err != nil {
		return nil, err
	}
	for i, rule := range rules {
		at := "spec.rules" + fields.Index(i)
		paths, err := fields.Objects(rule, "http", "paths")
		if err != nil {
			return nil, fields.Under(at, err)
		}
		for j, path := range paths {
			if err := refs.AddField(podspec.Service, path, "backend", "service", "name"); err != nil {
				return nil, fields.Under(at+".http.paths"+fields.Index(j), err)
			}
		}
	}
	return refs.List(), nil
}

// serviceImportDependencies are the Service that stands for the imported one and its endpoints.
func serviceImportDependencies(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	name, found, err := fields.String(obj.Object, "metadata", "name")
	if err != nil || !found {
		return nil, err
	}
	derived := names.DerivedServiceName(name)
	return []configv1alpha1.DependentObjectReference{
		{APIVersion: "v1", Kind: "Service", Namespace: obj.GetNamespace(), Name: derived},
		{
			APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice", Namespace: obj.GetNamespace(),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/service-name": derived}},
		},
	}, nil
}
