package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/cellplane/cellplane/api/names"
)

// FieldManager is the field manager of the federation in members. The merge relies on every write using it.
const FieldManager = "cellplane"

// Merger updates objects of kinds whose schema it has. Other kinds are merged by what the member's managed fields show
// about them; their other lists count as one value. It is safe for concurrent use.
type Merger struct {
	catalogues []*catalogue
}

// New returns a Merger with the kinds of the converters in addition to those of Kubernetes. A converter made from a
// member's OpenAPI document has the custom resources of that member; create a new Merger when those change.
func New(converters ...managedfields.TypeConverter) *Merger {
	merger := &Merger{catalogues: []*catalogue{builtIn()}}
	for _, converter := range converters {
		merger.catalogues = append(merger.catalogues, newCatalogue(converter))
	}
	return merger
}

// Update merges like [Merger.Update] with the schemas of the kinds of Kubernetes.
func Update(live, desired *unstructured.Unstructured) (merged *unstructured.Unstructured, changed bool, err error) {
	return (&Merger{catalogues: []*catalogue{builtIn()}}).Update(live, desired)
}

// Update returns the live object with the desired manifest merged into it, ready to be written back: it carries the
// resourceVersion of live, so that the write fails if live is stale. When nothing needs to change, it returns live
// itself and false.
//
// Desired should have been stamped ([Stamp]) before hooks copied anything from live into it. Status, finalizers, owner
// references and all other metadata but labels and annotations are those of live.
func (m *Merger) Update(live, desired *unstructured.Unstructured) (merged *unstructured.Unstructured, changed bool, err error) {
	if err := sameObject(live, desired); err != nil {
		return nil, false, err
	}
	manifest := manifestOf(desired)
	root := m.shapeOf(desired.GroupVersionKind())
	unchanged := manifest.fingerprint == metadataEntries(live, "annotations")[FingerprintAnnotation]
	if unchanged && coversObject(live, manifest, root) {
		return live, false, nil
	}

	owners := ownersOf(live, desired.GetAPIVersion())
	w := walk{removing: !unchanged}
	result, changed := w.object(live, manifest, owners, root)
	if !changed {
		return live, false, nil
	}
	// The walk shares what it did not change with live and desired, which may sit in a cache.
	return result.DeepCopy(), true, nil
}

// sameObject guards against merging one object into another.
func sameObject(live, desired *unstructured.Unstructured) error {
	if live.GroupVersionKind() != desired.GroupVersionKind() ||
		live.GetNamespace() != desired.GetNamespace() || live.GetName() != desired.GetName() {
		return fmt.Errorf("cannot merge %s into %s: read the live object with the apiVersion of the manifest",
			identity(desired), identity(live))
	}
	return nil
}

func identity(obj *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
}

// manifest is what the federation wants, in the parts that are merged.
type manifest struct {
	body        map[string]any // all but metadata, status, apiVersion and kind
	labels      map[string]any
	annotations map[string]any
	fingerprint string
}

func manifestOf(desired *unstructured.Unstructured) manifest {
	result := manifest{
		body:        body(desired),
		labels:      metadataEntries(desired, "labels"),
		annotations: metadataEntries(desired, "annotations"),
	}
	if stamped, ok := result.annotations[FingerprintAnnotation].(string); ok {
		result.fingerprint = stamped
		return result
	}
	result.fingerprint = Fingerprint(desired)
	result.annotations = maps.Clone(result.annotations)
	if result.annotations == nil {
		result.annotations = map[string]any{}
	}
	result.annotations[FingerprintAnnotation] = result.fingerprint
	return result
}

// body returns the fields of an object that are merged by schema.
func body(obj *unstructured.Unstructured) map[string]any {
	fields := make(map[string]any, len(obj.Object))
	for name, value := range obj.Object {
		if !outsideBody(name) {
			fields[name] = value
		}
	}
	return fields
}

func outsideBody(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata" || name == "status"
}

func metadataEntries(obj *unstructured.Unstructured, field string) map[string]any {
	metadata, _ := obj.Object["metadata"].(map[string]any)
	entries, _ := metadata[field].(map[string]any)
	return entries
}

// coversObject reports whether live already has everything the manifest asks for.
func coversObject(live *unstructured.Unstructured, manifest manifest, root *shape) bool {
	for name, want := range manifest.body {
		if !covers(live.Object[name], want, root.field(name)) {
			return false
		}
	}
	return covers(anyMap(metadataEntries(live, "labels")), anyMap(manifest.labels), nil) &&
		covers(anyMap(metadataEntries(live, "annotations")), anyMap(manifest.annotations), nil)
}

// anyMap keeps a nil map from becoming a non-nil interface.
func anyMap(entries map[string]any) any {
	if entries == nil {
		return nil
	}
	return entries
}

// object merges a whole object.
func (w *walk) object(live *unstructured.Unstructured, manifest manifest, owners owners, root *shape) (*unstructured.Unstructured, bool) {
	merged, bodyChanged := w.fields(body(live), manifest.body, owners, root)
	metadata := owners.field("metadata")
	labels, labelsChanged := w.entries(live, "labels", manifest.labels, metadata, names.ManagedLabelsAnnotation)
	annotations, annotationsChanged := w.entries(live, "annotations", manifest.annotations, metadata, names.ManagedAnnotationsAnnotation)
	if !bodyChanged && !labelsChanged && !annotationsChanged {
		return live, false
	}

	result := maps.Clone(merged)
	for name := range live.Object {
		if outsideBody(name) {
			result[name] = live.Object[name]
		}
	}
	liveMeta, _ := live.Object["metadata"].(map[string]any)
	meta := maps.Clone(liveMeta)
	setEntries(meta, "labels", labels)
	setEntries(meta, "annotations", annotations)
	result["metadata"] = meta
	return &unstructured.Unstructured{Object: result}, true
}

// entries merges labels or annotations. Where managed fields of ours are missing, as on objects that Karmada wrote or
// in members that strip them, the lists of managed keys on the live object say which ones are ours.
func (w *walk) entries(live *unstructured.Unstructured, field string, desired map[string]any, metadata owners, managedKeys string) (map[string]any, bool) {
	current := metadataEntries(live, field)
	merged, changed := w.fields(current, desired, metadata.field(field), nil)
	if !w.removing || metadata.weAppear {
		return merged, changed
	}
	listed, _ := metadataEntries(live, "annotations")[managedKeys].(string)
	var removed []string
	for key := range strings.SplitSeq(listed, ",") {
		_, wanted := desired[key]
		if _, exists := merged[key]; exists && !wanted {
			removed = append(removed, key)
		}
	}
	if len(removed) == 0 {
		return merged, changed
	}
	merged = maps.Clone(merged)
	maps.DeleteFunc(merged, func(key string, _ any) bool { return slices.Contains(removed, key) })
	return merged, true
}

func setEntries(metadata map[string]any, field string, entries map[string]any) {
	if len(entries) == 0 {
		delete(metadata, field)
		return
	}
	metadata[field] = entries
}
