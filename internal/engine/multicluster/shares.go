package multicluster

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	multiclusterv1alpha1 "github.com/cellplane/cellplane/api/multicluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/exposure"
)

// crossCluster returns the share of a MultiClusterService. Its clusters are those that the Service is placed in: a cluster that is evicted
// neither offers nor uses it.
func crossCluster(m *exposure.CrossCluster, service cell.Key, placed []string) *share {
	among := func(named []string) []string {
		if len(named) == 0 {
			return placed
		}
		return slices.DeleteFunc(slices.Clone(placed), func(cluster string) bool { return !slices.Contains(named, cluster) })
	}
	return &share{
		owner: m.Template.UID, managedBy: names.ClaimedByMultiClusterService, service: service, as: service.Name, sliceName: names.DispatchedEndpointSliceName,
		labels:    crossClusterLabels(service),
		providers: among(m.Providers), consumers: among(m.Consumers), ports: m.Ports,
	}
}

// crossClusterLabels are those of the Works of a MultiClusterService.
func crossClusterLabels(service cell.Key) map[string]string {
	return map[string]string{names.MultiClusterServiceNamespaceLabel: service.Namespace, names.MultiClusterServiceNameLabel: service.Name}
}

// importLabels are those of the Works of a ServiceImport.
func importLabels(service cell.Key) map[string]string {
	return map[string]string{names.EndpointSliceNamespaceLabel: service.Namespace, names.EndpointSliceNameLabel: service.Name}
}

// imported returns the share of a ServiceImport.
func imported(i *exposure.Imported, service cell.Key) (*share, error) {
	derived, err := derivedService(i, service)
	if err != nil {
		return nil, err
	}
	return &share{
		owner: i.Template.UID, managedBy: names.ManagedByServiceExport, service: service, as: derived.GetName(), sliceName: names.ImportedEndpointSliceName,
		labels:    importLabels(service),
		providers: i.Providers, consumers: i.Consumers, toItself: true, derived: derived,
	}, nil
}

// derivedService returns the Service that stands for an imported one. It has no selector: its endpoints are sent to the cluster.
func derivedService(i *exposure.Imported, service cell.Key) (*unstructured.Unstructured, error) {
	from := &i.Import.Spec
	derived := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: names.DerivedServiceName(service.Name)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilies: from.IPFamilies, InternalTrafficPolicy: from.InternalTrafficPolicy, TrafficDistribution: from.TrafficDistribution,
			SessionAffinity: from.SessionAffinity, SessionAffinityConfig: from.SessionAffinityConfig,
		},
	}
	if i.Export != nil {
		derived.Labels, derived.Annotations = maps.Clone(i.Export.Spec.ExportedLabels), maps.Clone(i.Export.Spec.ExportedAnnotations)
	}
	if from.Type == multiclusterv1alpha1.Headless {
		derived.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, port := range from.Ports {
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		derived.Spec.Ports = append(derived.Spec.Ports, corev1.ServicePort{Name: port.Name, Protocol: protocol, AppProtocol: port.AppProtocol, Port: port.Port})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(derived)
	if err != nil {
		return nil, fmt.Errorf("converting the Service of ServiceImport %s: %w", service, err)
	}
	object := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(object.Object, "status")
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	ports, _, _ := unstructured.NestedSlice(object.Object, "spec", "ports")
	for _, port := range ports {
		if entry, ok := port.(map[string]any); ok {
			delete(entry, "targetPort") // it has no meaning without a selector; the API server sets it
		}
	}
	if len(ports) > 0 {
		if err := unstructured.SetNestedSlice(object.Object, ports, "spec", "ports"); err != nil {
			return nil, fmt.Errorf("converting the Service of ServiceImport %s: %w", service, err)
		}
	}
	return object, nil
}
