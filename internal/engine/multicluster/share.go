package multicluster

import (
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/endpointslices"
)

// share is a Service that some clusters offer and others use.
type share struct {
	// owner is the UID of the object that asks for it, and labels those of its Works.
	owner  types.UID
	labels map[string]string
	// managedBy is the kind that its EndpointSlices are sent for.
	managedBy string
	// service is the Service where it is offered, and as its name where it is used.
	service cell.Key
	as      string
	// sliceName returns the name that an EndpointSlice of a cluster has where it is used.
	sliceName            func(cluster, slice string) string
	providers, consumers []string
	// toItself is set if a cluster that offers and uses the Service gets its own endpoints: those of another Service.
	toItself bool
	// ports are the names of the ports that are exposed; nil means all.
	ports []string
	// derived is the Service where it is used, nil if that is propagated as usual.
	derived *unstructured.Unstructured
}

// manifest is an object that a cluster should have.
type manifest struct {
	cluster string
	// provider is the cluster that the endpoints come from, "" for a Service.
	provider string
	object   *unstructured.Unstructured
}

// manifests returns what the clusters that use the Service should have, and the clusters whose endpoints are not known yet.
func (s *share) manifests(of func(cluster string, service cell.Key) ([]*endpointslices.Slice, bool)) (wanted []manifest, unknown []string, err error) {
	if s.derived != nil {
		for _, consumer := range s.consumers {
			wanted = append(wanted, manifest{cluster: consumer, object: s.derived})
		}
	}
	for _, provider := range s.providers {
		found, known := of(provider, s.service)
		if !known {
			unknown = append(unknown, provider)
			continue
		}
		for _, slice := range found {
			object, err := s.slice(provider, slice)
			if err != nil {
				return nil, nil, err
			}
			if object == nil {
				continue
			}
			for _, consumer := range s.consumers {
				if consumer != provider || s.toItself {
					wanted = append(wanted, manifest{cluster: consumer, provider: provider, object: object})
				}
			}
		}
	}
	return wanted, unknown, nil
}

// slice returns an EndpointSlice of a cluster as others get it, nil if it has no endpoints or none of its ports is exposed.
func (s *share) slice(provider string, from *endpointslices.Slice) (*unstructured.Unstructured, error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal([]byte(from.Content), &content); err != nil {
		return nil, fmt.Errorf("reading EndpointSlice %s/%s of cluster %s: %w", s.service.Namespace, from.Name, provider, err)
	}
	if endpoints, _ := content["endpoints"].([]any); len(endpoints) == 0 {
		return nil, nil //nolint:nilnil // nothing is to be sent
	}
	if ports, listed := content["ports"].([]any); listed && len(s.ports) > 0 {
		exposed := slices.DeleteFunc(ports, func(port any) bool {
			entry, _ := port.(map[string]any)
			name, _ := entry["name"].(string)
			return !slices.Contains(s.ports, name)
		})
		if len(exposed) == 0 {
			return nil, nil //nolint:nilnil // nothing is to be sent
		}
		content["ports"] = exposed
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(endpointslices.Kind)
	object.SetNamespace(s.service.Namespace)
	object.SetName(s.sliceName(provider, from.Name))
	labels := map[string]string{discoveryv1.LabelServiceName: s.as, discoveryv1.LabelManagedBy: names.DispatchedEndpointSlice}
	if from.Headless {
		labels["service.kubernetes.io/headless"] = ""
	}
	object.SetLabels(labels)
	object.SetAnnotations(map[string]string{names.ProvisionClusterAnnotation: provider})
	return object, nil
}

// workLabels returns the labels of the Work of a manifest.
func (s *share) workLabels(of *manifest, id, slot string) map[string]string {
	labels := map[string]string{names.WorkPermanentIDLabel: id, names.SlotLabel: slot}
	maps.Copy(labels, s.labels)
	if of.provider != "" {
		labels[names.EndpointSliceManagedByLabel] = s.managedBy
	}
	return labels
}
