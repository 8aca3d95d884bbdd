package cell

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/merge"
)

// Kind is a kind that the cell serves, with its resource.
type Kind struct {
	schema.GroupVersionKind
	Resource   string
	Namespaced bool
}

// GVR returns the resource of the kind.
func (k *Kind) GVR() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.Resource) }

// TemplateKey identifies a template.
type TemplateKey struct {
	schema.GroupVersionKind
	Key
}

// String returns kind and name, for messages.
func (k TemplateKey) String() string { return k.Kind + " " + k.Key.String() }

// Binding returns the key of the template's binding.
func (k TemplateKey) Binding() Key {
	return Key{Namespace: k.Namespace, Name: names.BindingName(k.Kind, k.Name)}
}

// Template is a user's object, condensed. Its content is kept as bytes: decoding takes microseconds, keeping it decoded
// takes ten times the memory.
type Template struct {
	Kind       *Kind
	Namespace  string
	Name       string
	UID        types.UID
	Version    string
	Generation int64
	Labels     map[string]string
	Claim      Claim
	// Digest covers what the user controls: all but status, claims and what the API server adds.
	Digest   uint64
	Deleting bool
	// Frozen is set while the template belongs, or is about to belong, to another cell.
	Frozen bool
	// Suspended is set if the template says that its Works are not dispatched.
	Suspended bool
	// Dispatching is its annotation of this name; empty if the Works are dispatched.
	Dispatching string
	// released lists clusters whose copies stay there, separated by commas.
	released string
	// Created is the creation time in seconds.
	Created int64
	content []byte
}

// Key returns the template's key.
func (t *Template) Key() TemplateKey {
	return TemplateKey{GroupVersionKind: t.Kind.GroupVersionKind, Key: Key{Namespace: t.Namespace, Name: t.Name}}
}

// Object decodes the template, without managed fields. The caller may modify it.
func (t *Template) Object() (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(t.content); err != nil {
		return nil, fmt.Errorf("reading %s: %w", t.Key(), err)
	}
	return obj, nil
}

// Releases reports whether the template says that the copy in a cluster stays there when its Work is deleted.
func (t *Template) Releases(cluster string) bool {
	return t.released != "" && (t.released == "*" || slices.Contains(strings.Split(t.released, ","), cluster))
}

// ReportsOnly reports whether clusters are not written to, but compared with what the federation wants: the template says so, or its policy by the binding.
func (t *Template) ReportsOnly(binding *workv1alpha2.ResourceBinding) bool {
	return t.Dispatching != "" || binding.Annotations[names.DispatchingAnnotation] != ""
}

// Claim is the policy that a template belongs to, or the MultiClusterService that a Service belongs to. Several parts may be set for a moment; then
// the MultiClusterService wins, or else the namespaced policy.
type Claim struct {
	PolicyID, PolicyNamespace, PolicyName    string
	ClusterPolicyID, ClusterPolicyName       string
	ServiceID, ServiceNamespace, ServiceName string
}

// Empty reports whether no policy claims the template.
func (c Claim) Empty() bool { return c == Claim{} }

// ClaimOf reads the claim from labels and annotations.
func ClaimOf(labels, annotations map[string]string) Claim {
	return Claim{
		PolicyID:          labels[names.PropagationPolicyPermanentIDLabel],
		PolicyNamespace:   annotations[names.PropagationPolicyNamespaceAnnotation],
		PolicyName:        annotations[names.PropagationPolicyNameAnnotation],
		ClusterPolicyID:   labels[names.ClusterPropagationPolicyPermanentIDLabel],
		ClusterPolicyName: annotations[names.ClusterPropagationPolicyNameAnnotation],
		ServiceID:         labels[names.MultiClusterServicePermanentIDLabel],
		ServiceNamespace:  annotations[names.MultiClusterServiceNamespaceAnnotation],
		ServiceName:       annotations[names.MultiClusterServiceNameAnnotation],
	}
}

// claimOn reads the claim of a template. Only Services belong to MultiClusterServices, which have the label of the permanent ID themselves.
func claimOn(kind *Kind, labels, annotations map[string]string) Claim {
	claim := ClaimOf(labels, annotations)
	if kind.GroupVersionKind != ServiceKind {
		claim.ServiceID, claim.ServiceNamespace, claim.ServiceName = "", "", ""
	}
	return claim
}

func (c Claim) shared() Claim {
	share(&c.PolicyID, &c.PolicyNamespace, &c.PolicyName, &c.ClusterPolicyID, &c.ClusterPolicyName, &c.ServiceID, &c.ServiceNamespace, &c.ServiceName)
	return c
}

// Labels returns the labels of the claim; those to remove have the value "".
func (c Claim) Labels() map[string]string {
	return map[string]string{
		names.PropagationPolicyPermanentIDLabel:        c.PolicyID,
		names.ClusterPropagationPolicyPermanentIDLabel: c.ClusterPolicyID,
		names.MultiClusterServicePermanentIDLabel:      c.ServiceID,
	}
}

// Annotations returns the annotations of the claim; those to remove have the value "".
func (c Claim) Annotations() map[string]string {
	return map[string]string{
		names.PropagationPolicyNamespaceAnnotation:   c.PolicyNamespace,
		names.PropagationPolicyNameAnnotation:        c.PolicyName,
		names.ClusterPropagationPolicyNameAnnotation: c.ClusterPolicyName,
		names.MultiClusterServiceNamespaceAnnotation: c.ServiceNamespace,
		names.MultiClusterServiceNameAnnotation:      c.ServiceName,
	}
}

// condenseTemplate returns the function that condenses objects of a kind.
func condenseTemplate(kind *Kind) func(runtime.Object, *Template) *Template {
	return func(from runtime.Object, _ *Template) *Template {
		obj, ok := from.(*unstructured.Unstructured)
		if !ok {
			return nil
		}
		labels, annotations := obj.GetLabels(), obj.GetAnnotations()
		if claimedElsewhere(kind, labels) || annotations[names.CopiedFromHubAnnotation] != "" {
			return nil // another controller, or the hub's engine, propagates it
		}
		if isRevision(kind.GroupVersionKind, labels) {
			return nil
		}
		t := &Template{
			Kind: kind, Namespace: Shared(obj.GetNamespace()), Name: Shared(obj.GetName()), UID: types.UID(Shared(string(obj.GetUID()))),
			Version: obj.GetResourceVersion(), Generation: obj.GetGeneration(), Labels: sharedEntries(labels),
			Claim: claimOn(kind, labels, annotations).shared(), Digest: userDigest(obj),
			Deleting:    obj.GetDeletionTimestamp() != nil,
			Frozen:      labels[names.RebalanceStatusLabel] != "",
			Suspended:   annotations[names.SuspendDispatchingAnnotation] == "true" || annotations[names.DispatchingAnnotation] != "",
			Dispatching: Shared(annotations[names.DispatchingAnnotation]),
			Created:     obj.GetCreationTimestamp().Unix(),
			released:    annotations[names.ReleaseAnnotation],
		}
		t.content = contentOf(obj)
		return t
	}
}

// claimedElsewhere reports whether another controller propagates an object. Services of MultiClusterServices are ours.
func claimedElsewhere(kind *Kind, labels map[string]string) bool {
	by := labels[names.ClaimedByLabel]
	ours := by == names.ClaimedByMultiClusterService && kind.GroupVersionKind == ServiceKind && labels[names.MultiClusterServicePermanentIDLabel] != ""
	return by != "" && !ours
}

// ServiceKind is the kind of Services.
var ServiceKind = corev1.SchemeGroupVersion.WithKind("Service")

// contentOf encodes an object without its managed fields, which are often the larger half.
func contentOf(obj *unstructured.Unstructured) []byte {
	root := obj.Object
	if metadata, ok := root["metadata"].(map[string]any); ok && metadata["managedFields"] != nil {
		root, metadata = maps.Clone(root), maps.Clone(metadata)
		delete(metadata, "managedFields")
		root["metadata"] = metadata
	}
	content, err := json.Marshal(root)
	if err != nil { // cannot happen: it was decoded from JSON
		return nil
	}
	return content
}

// userDigest returns a digest of what a user controls in a template, so that our own labels and status do not count as
// changes.
func userDigest(obj *unstructured.Unstructured) uint64 {
	root := maps.Clone(obj.Object)
	metadata, _ := root["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	for _, field := range []string{"labels", "annotations"} {
		if entries, ok := metadata[field].(map[string]any); ok {
			entries = maps.Clone(entries)
			maps.DeleteFunc(entries, func(key string, _ any) bool { return isClaim(key) })
			metadata[field] = entries
		}
	}
	root["metadata"] = metadata
	return xxhash.Sum64String(merge.Fingerprint(&unstructured.Unstructured{Object: root}))
}

func isClaim(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix == "propagationpolicy.karmada.io" || prefix == "clusterpropagationpolicy.karmada.io" || prefix == "multiclusterservice.karmada.io" ||
		key == names.ClaimedByLabel || key == names.RebalanceStatusLabel || key == names.MovedFromAnnotation || key == names.CopiedAtAnnotation
}
