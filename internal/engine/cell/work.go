package cell

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	entryrules "github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/rollout"
)

// Work is a condensed Work: everything but the manifests.
type Work struct {
	Key
	Cluster    string
	UID        types.UID
	Created    int64 // in seconds
	Version    string
	Generation int64
	// ID is the permanent ID, a label of the objects in the member.
	ID string
	// Binding is the binding of the Work; its name is empty for other Works.
	Binding Key
	// Objects are the objects that the manifests describe.
	Objects []Object
	// Digest covers spec, labels and annotations.
	Digest uint64
	// Overrides is a digest of the applied overrides, 0 if there are none.
	Overrides uint64
	// Entries is what the policy says about open entries, nil for nearly all Works.
	Entries   *entryrules.Rules
	Suspended bool
	// ReportOnly is set if the Work is suspended, and how its objects differ is to be reported.
	ReportOnly bool
	Preserve   bool
	Deleting   bool
	Frozen     bool
	// Finalizers are all finalizers, including ours.
	Finalizers []string
	// foreign is the metadata that others wrote, nil for nearly all Works.
	foreign *foreignMetadata
	// Conditions are those of the status; StatusDigest covers the rest of it.
	Conditions   Conditions
	StatusDigest uint64
	// Pulled is set if the cluster applies the Work by itself; then Reported is what it reports.
	Pulled   bool
	Reported []workv1alpha1.ManifestStatus
}

// Object is the object that a manifest describes.
type Object struct {
	schema.GroupVersionKind
	Key
	// Fingerprint of the manifest.
	Fingerprint string
	// Broken says why the manifest is invalid.
	Broken string
	// Copy is what the manifest of a workload tells its cluster; nil for kinds whose rollouts are not planned.
	Copy *rollout.Copy
	// PodTemplate names the pod template of the manifest; empty if it has none.
	PodTemplate string
	// Replaced are the fields of its spec that the command in the manifest has replaced.
	Replaced map[string]any
}

// String names the object, for messages.
func (o *Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Indexes of works.
const (
	worksByBinding = iota
	worksByCluster
	worksByService
)

func newWorks(c *Cell) *Store[Work] {
	works := newStore(func(obj runtime.Object, before *Work) *Work {
		work, ok := obj.(*workv1alpha1.Work)
		if !ok {
			return nil
		}
		return c.condenseWork(work, before)
	}, func(w *Work) []string {
		if w.Binding.Name == "" {
			return nil
		}
		return []string{w.Binding.String()}
	}, func(w *Work) []string { return []string{w.Cluster} }, func(w *Work) []string {
		if service, shared := w.Service(); shared {
			return []string{service.String()}
		}
		return nil
	})
	if c.Cluster != "" {
		works.copies = &copies[Work]{uid: func(w *Work) types.UID { return w.UID }, replaces: replacesWork}
	}
	return works
}

// Service returns the Service whose endpoints a Work takes to another cluster, and whether it does.
func (w *Work) Service() (Key, bool) {
	if w.foreign == nil {
		return Key{}, false
	}
	labels := w.foreign.labels
	for _, by := range [][2]string{
		{names.MultiClusterServiceNamespaceLabel, names.MultiClusterServiceNameLabel}, {names.EndpointSliceNamespaceLabel, names.EndpointSliceNameLabel},
	} {
		if name := labels[by[1]]; name != "" {
			return Key{Namespace: labels[by[0]], Name: name}, true
		}
	}
	return Key{}, false
}

// Provider returns the cluster that the endpoints in a Work come from, "" for other Works.
func (w *Work) Provider() string {
	if w.foreign == nil {
		return ""
	}
	return w.foreign.annotations[names.ProvisionClusterAnnotation]
}

func (c *Cell) condenseWork(work *workv1alpha1.Work, before *Work) *Work {
	cluster, ok := names.ClusterFromExecutionNamespace(work.Namespace)
	if !ok {
		return nil
	}
	w := &Work{
		Key: sharedKey(keyOf(work)), Cluster: Shared(cluster), UID: work.UID, Created: work.CreationTimestamp.Unix(), Version: work.ResourceVersion, Generation: work.Generation,
		ID:           work.Labels[names.WorkPermanentIDLabel],
		Binding:      sharedKey(bindingOfWork(work)),
		Suspended:    ptr.Deref(work.Spec.SuspendDispatching, false),
		Preserve:     ptr.Deref(work.Spec.PreserveResourcesOnDeletion, false),
		Deleting:     work.DeletionTimestamp != nil,
		Finalizers:   sharedTexts(work.Finalizers),
		foreign:      foreignOf(&work.ObjectMeta),
		Frozen:       work.Labels[names.RebalanceStatusLabel] != "",
		Conditions:   CompactConditions(work.Status.Conditions),
		StatusDigest: StatusDigest(work.Status.ManifestStatuses),
	}
	w.Entries, _ = entryrules.RulesOf(work.Annotations) // the binding controller writes valid ones
	w.ReportOnly = w.Suspended && work.Annotations[names.DispatchingAnnotation] != ""
	if member := c.Clusters.Get(Key{Name: cluster}); c.Cluster == "" && member != nil && member.Spec.SyncMode == clusterv1alpha1.Pull {
		w.Pulled, w.Reported = true, work.Status.ManifestStatuses
	}
	if before != nil && before.UID == w.UID && before.Generation == w.Generation {
		w.Objects = before.Objects
	} else {
		w.Objects = objectsOf(work.Spec.Workload.Manifests)
		c.Manifests.Add(w.Key, w.UID, w.Generation, work.Spec.Workload.Manifests)
	}
	w.Digest = WorkDigest(work.Labels, work.Annotations, w.Suspended, work.Spec.PreserveResourcesOnDeletion, w.Objects)
	w.Overrides = OverridesDigest(work.Annotations)
	return w
}

// takeStatus copies the status of an earlier version of the same Work.
func (w *Work) takeStatus(from *Work) {
	w.Conditions, w.StatusDigest, w.Reported = from.Conditions, from.StatusDigest, from.Reported
}

func bindingOfWork(work *workv1alpha1.Work) Key {
	if name := work.Annotations[names.ResourceBindingNameAnnotation]; name != "" {
		return Key{Namespace: work.Annotations[names.ResourceBindingNamespaceAnnotation], Name: name}
	}
	return Key{Name: work.Annotations[names.ClusterResourceBindingNameAnnotation]}
}

func objectsOf(manifests []workv1alpha1.Manifest) []Object {
	objects := make([]Object, len(manifests))
	for i := range manifests {
		if decoded, ok := manifests[i].Object.(*unstructured.Unstructured); ok {
			objects[i] = DescribeManifest(decoded) // just rendered
			continue
		}
		objects[i] = ObjectOf(manifests[i].Raw)
	}
	return objects
}

// ObjectOf returns the object that a manifest describes.
func ObjectOf(manifest []byte) Object {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(manifest); err != nil {
		return Object{Broken: err.Error()}
	}
	return DescribeManifest(obj)
}

// DescribeManifest returns the object that a decoded manifest describes.
func DescribeManifest(obj *unstructured.Unstructured) Object {
	return Object{
		GroupVersionKind: sharedKind(obj.GroupVersionKind()), Key: sharedKey(keyOf(obj)),
		Fingerprint: merge.Fingerprint(obj),
		Copy:        rollout.Told(obj),
		PodTemplate: rollout.PodTemplateOf(obj),
		Replaced:    rollout.Replaced(obj),
	}
}

// WorkDigest returns a digest of what a Work asks for, to compare a wanted Work with an existing one.
func WorkDigest(labels, annotations map[string]string, suspended bool, preserve *bool, objects []Object) uint64 {
	digest := xxhash.New()
	write := func(parts ...string) {
		for _, part := range parts {
			_, _ = digest.WriteString(part) // a hash's writes never fail
			_, _ = digest.Write([]byte{0})
		}
	}
	for _, key := range workLabels {
		write(labels[key])
	}
	for _, key := range workAnnotations {
		write(annotations[key])
	}
	write(strconv.FormatBool(suspended), strconv.FormatBool(ptr.Deref(preserve, false)))
	if preserve != nil && !*preserve {
		write("not preserved")
	}
	for i := range objects {
		write(objects[i].GroupVersionKind.String(), objects[i].Namespace, objects[i].Name, objects[i].Fingerprint)
	}
	return digest.Sum64()
}

// OverridesDigest returns a digest of the applied overrides in the annotations of a Work, 0 if there are none.
func OverridesDigest(annotations map[string]string) uint64 {
	clusterWide, namespaced := annotations[names.AppliedClusterOverridesAnnotation], annotations[names.AppliedOverridesAnnotation]
	if clusterWide == "" && namespaced == "" {
		return 0
	}
	return xxhash.Sum64String(clusterWide + "\x00" + namespaced)
}

// The labels and annotations of Works that are ours. Others may add theirs.
var (
	workLabels = []string{
		names.WorkPermanentIDLabel, names.ResourceBindingPermanentIDLabel, names.ClusterResourceBindingPermanentIDLabel, names.SlotLabel,
	}
	workAnnotations = []string{
		names.ResourceBindingNamespaceAnnotation, names.ResourceBindingNameAnnotation, names.ClusterResourceBindingNameAnnotation,
		names.ConflictResolutionAnnotation, names.AppliedOverridesAnnotation, names.AppliedClusterOverridesAnnotation,
		names.AutoEntryAnnotation, names.EntryExpiryAnnotation, names.DispatchingAnnotation,
	}
)

// foreignMetadata is metadata that others wrote on a Work. Updates keep it.
type foreignMetadata struct {
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
}

// foreignOf returns the metadata that others wrote on a Work, nil if there is none.
func foreignOf(work *metav1.ObjectMeta) *foreignMetadata {
	f := &foreignMetadata{labels: without(work.Labels, workLabels), annotations: without(work.Annotations, workAnnotations), owners: work.OwnerReferences}
	if len(f.labels) == 0 && len(f.annotations) == 0 && len(f.owners) == 0 {
		return nil
	}
	return f
}

// without returns the entries with other keys, nil if there are none.
func without(entries map[string]string, keys []string) map[string]string {
	var rest map[string]string
	for key, value := range entries {
		if slices.Contains(keys, key) {
			continue
		}
		if rest == nil {
			rest = map[string]string{}
		}
		rest[key] = value
	}
	return rest
}

// updated returns the metadata for an update of a Work: the wanted one and that of others.
func (w *Work) updated(wanted *metav1.ObjectMeta) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: w.Namespace, Name: w.Name, UID: w.UID, ResourceVersion: w.Version, Finalizers: w.Finalizers,
		Labels: map[string]string{}, Annotations: map[string]string{},
		// The managed fields of Works are not used. An empty entry stops the API server from tracking them.
		ManagedFields: []metav1.ManagedFieldsEntry{{}},
	}
	if !slices.Contains(meta.Finalizers, names.ExecutionFinalizer) {
		meta.Finalizers = append(slices.Clone(meta.Finalizers), names.ExecutionFinalizer)
	}
	if w.foreign != nil {
		maps.Copy(meta.Labels, w.foreign.labels)
		maps.Copy(meta.Annotations, w.foreign.annotations)
		meta.OwnerReferences = w.foreign.owners
	}
	addSet(meta.Labels, wanted.Labels)
	addSet(meta.Annotations, wanted.Annotations)
	return meta
}

// addSet adds the entries that are not empty.
func addSet(to, from map[string]string) {
	for key, value := range from {
		if value != "" {
			to[key] = value
		}
	}
}

// StatusDigest returns a digest of the statuses of manifests.
func StatusDigest(statuses []workv1alpha1.ManifestStatus) uint64 {
	if len(statuses) == 0 {
		return 0
	}
	digest := xxhash.New()
	var text strings.Builder
	for i := range statuses {
		s := &statuses[i]
		text.Reset()
		text.WriteString(strconv.Itoa(s.Identifier.Ordinal))
		for _, part := range []string{s.Identifier.Group, s.Identifier.Version, s.Identifier.Kind, s.Identifier.Resource, s.Identifier.Namespace, s.Identifier.Name, string(s.Health)} {
			text.WriteByte(0)
			text.WriteString(part)
		}
		_, _ = digest.WriteString(text.String()) // a hash's writes never fail
		if s.Status != nil {
			_, _ = digest.Write(Canonical(s.Status.Raw))
		}
	}
	return digest.Sum64()
}
