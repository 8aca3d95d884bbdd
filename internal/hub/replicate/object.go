package replicate

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/names"
)

// Annotations of a copy.
const (
	// SourceUIDAnnotation marks a copy, with the UID of its source on the hub.
	SourceUIDAnnotation = names.CopiedFromHubAnnotation
	// SourceGenerationAnnotation is the generation of the source.
	SourceGenerationAnnotation = names.SourceGenerationAnnotation
	// SourceCreatedAnnotation is the time at which the source was created.
	SourceCreatedAnnotation = names.SourceCreatedAnnotation
	// SourceDeletedAnnotation is the deletion time of the source, on a copy that stays until the source is gone.
	SourceDeletedAnnotation = "cellplane.io/source-deleted"
)

// SourceUID returns the UID of the object on the hub that an object in a cell is a copy of, "" if it is not a copy.
func SourceUID(object metav1.Object) types.UID {
	return types.UID(object.GetAnnotations()[SourceUIDAnnotation])
}

// digest is a hash of content. It is empty for no content.
type digest string

// Source is the part of an object on the hub that is copied.
type Source struct {
	metav1.ObjectMeta // without annotations and managed fields; Body has the copied annotations
	// Body is the copy as it is written, without its status.
	Body map[string]any
	// Status is the status, if it is copied.
	Status any

	digest, statusDigest digest
}

// deleting reports whether the source is being deleted.
func (s *Source) deleting() bool { return s.DeletionTimestamp != nil }

// Copy is what is cached of an object in a cell. Content is cached as a digest: there are many cells.
type Copy struct {
	metav1.ObjectMeta // with only the annotations and finalizers that are needed here
	// Served is whether the objects of a definition are served.
	Served bool

	digest, statusDigest digest
}

func (c *Copy) deleting() bool    { return c.DeletionTimestamp != nil }
func (c *Copy) source() types.UID { return SourceUID(c) }

// newSource reduces an object of the hub to what is copied of it.
func newSource(rule *Rule, object *unstructured.Unstructured) (*Source, error) {
	s := &Source{ObjectMeta: metav1.ObjectMeta{
		Name: object.GetName(), Namespace: object.GetNamespace(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		Labels: object.GetLabels(), DeletionTimestamp: object.GetDeletionTimestamp(),
	}}
	annotations := copiedAnnotations(object.GetAnnotations())
	annotations[SourceUIDAnnotation] = string(object.GetUID())
	annotations[SourceCreatedAnnotation] = object.GetCreationTimestamp().UTC().Format(time.RFC3339)
	if generation := object.GetGeneration(); generation != 0 {
		annotations[SourceGenerationAnnotation] = strconv.FormatInt(generation, 10)
	}
	if rule.Lingers && s.deleting() {
		annotations[SourceDeletedAnnotation] = s.DeletionTimestamp.UTC().Format(time.RFC3339)
	}
	metadata := map[string]any{"name": s.Name, "annotations": anyMap(annotations)}
	if s.Namespace != "" {
		metadata["namespace"] = s.Namespace
	}
	if len(s.Labels) > 0 {
		metadata["labels"] = anyMap(s.Labels)
	}
	if rule.adjust != nil {
		object = object.DeepCopy()
		rule.adjust(object.Object)
	}
	s.Body = contentOf(rule, object)
	var err error
	if s.digest, err = digestOf(s.Labels, annotations, s.Body); err != nil {
		return nil, err
	}
	s.Body["apiVersion"], s.Body["kind"], s.Body["metadata"] = object.GetAPIVersion(), object.GetKind(), metadata
	if rule.Part == ContentAndStatus {
		s.Status = object.Object["status"]
		s.statusDigest, err = digestOfStatus(s.Status)
	}
	return s, err
}

// newCopy reduces an object of a cell to what is cached of it.
func newCopy(rule *Rule, object *unstructured.Unstructured) (*Copy, error) {
	c := &Copy{ObjectMeta: metav1.ObjectMeta{
		Name: object.GetName(), Namespace: object.GetNamespace(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		DeletionTimestamp: object.GetDeletionTimestamp(), Finalizers: object.GetFinalizers(),
	}}
	if uid := SourceUID(object); uid != "" {
		c.Annotations = map[string]string{SourceUIDAnnotation: string(uid)}
	}
	if rule.isDefinition() {
		c.Served = isServed(object)
	}
	var err error
	if c.digest, err = digestOf(object.GetLabels(), object.GetAnnotations(), contentOf(rule, object)); err != nil {
		return nil, err
	}
	if rule.Part == ContentAndStatus {
		c.statusDigest, err = digestOfStatus(object.Object["status"])
	}
	return c, err
}

// contentOf returns the fields of an object that are copied, besides metadata and status.
func contentOf(rule *Rule, object *unstructured.Unstructured) map[string]any {
	if rule.Part == MetadataOnly {
		return map[string]any{}
	}
	content := maps.Clone(object.Object)
	for _, field := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(content, field)
	}
	return content
}

// copiedAnnotations leaves out what has no meaning in a cell: the annotation of kubectl apply, and our own annotations of
// copies.
func copiedAnnotations(annotations map[string]string) map[string]string {
	copied := make(map[string]string, len(annotations)+3)
	for key, value := range annotations {
		switch key {
		case corev1.LastAppliedConfigAnnotation, SourceUIDAnnotation, SourceGenerationAnnotation, SourceCreatedAnnotation, SourceDeletedAnnotation:
		default:
			copied[key] = value
		}
	}
	return copied
}

func anyMap(in map[string]string) map[string]any {
	out := make(map[string]any, len(in))
	for key, value := range in {
		out[key] = value
	}
	return out
}

// digestOf hashes what a copy and its source have in common.
func digestOf(labels, annotations map[string]string, content map[string]any) (digest, error) {
	return sum(struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Content     map[string]any    `json:"content,omitempty"`
	}{labels, annotations, content})
}

func digestOfStatus(status any) (digest, error) {
	if fields, ok := status.(map[string]any); status == nil || ok && len(fields) == 0 {
		return "", nil
	}
	return sum(status)
}

// sum hashes the JSON of a value, in which the keys of maps are sorted.
func sum(value any) (digest, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("hashing an object: %w", err)
	}
	hash := sha256.Sum256(encoded)
	return digest(hash[:16]), nil
}

// isServed reports whether the API server serves the objects of a definition.
func isServed(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, condition := range conditions {
		fields, ok := condition.(map[string]any)
		if ok && fields["type"] == "Established" && fields["status"] == "True" {
			return true
		}
	}
	return false
}

// secretRef returns the secret that a cluster refers to.
func secretRef(cluster *Source) (namespace, name string, ok bool) {
	namespace, _, _ = unstructured.NestedString(cluster.Body, "spec", "secretRef", "namespace")
	name, _, _ = unstructured.NestedString(cluster.Body, "spec", "secretRef", "name")
	return namespace, name, name != ""
}

// objectKey identifies an object of a copied kind.
type objectKey struct {
	kind            int // the index of its rule
	namespace, name string
}

func (k objectKey) path() string {
	return strings.TrimPrefix(k.namespace+"/"+k.name, "/")
}
