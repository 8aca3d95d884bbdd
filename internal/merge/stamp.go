package merge

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/entry"
)

// Marks say where a manifest comes from. Empty fields are not written.
type Marks struct {
	// WorkNamespace, WorkName and WorkID identify the Work of the manifest; WorkID is its permanent ID.
	WorkNamespace, WorkName, WorkID string
	// BindingNamespace, BindingName and BindingID identify the binding. Without a namespace it is a
	// ClusterResourceBinding.
	BindingNamespace, BindingName, BindingID string
	// TemplateUID and TemplateGeneration are those of the template.
	TemplateUID        types.UID
	TemplateGeneration int64
	// ConflictResolution is the policy's. An annotation of the template overrides it.
	ConflictResolution policyv1alpha1.ConflictResolution
	// Cell is the cell whose engine manages the object.
	Cell string
}

// The values of the conflict resolution annotation.
const (
	conflictOverwrite = "overwrite"
	conflictAbort     = "abort"
)

// Stamp returns the manifest with the labels and annotations that identify the object in the member, and with its
// fingerprint. The result shares everything but its metadata with the manifest, which is not modified.
func Stamp(manifest *unstructured.Unstructured, marks Marks) *unstructured.Unstructured {
	labels := copyEntries(manifest, "labels")
	annotations := copyEntries(manifest, "annotations")
	set := func(entries map[string]any, key, value string) {
		if value != "" {
			entries[key] = value
		}
	}

	for _, key := range notPropagated {
		delete(annotations, key)
	}
	labels[names.ManagedLabel] = names.ManagedValue
	set(labels, names.CellLabel, marks.Cell)
	set(labels, names.WorkPermanentIDLabel, marks.WorkID)
	set(annotations, names.WorkNamespaceAnnotation, marks.WorkNamespace)
	set(annotations, names.WorkNameAnnotation, marks.WorkName)
	if marks.BindingNamespace != "" {
		set(labels, names.ResourceBindingPermanentIDLabel, marks.BindingID)
		set(annotations, names.ResourceBindingNamespaceAnnotation, marks.BindingNamespace)
		set(annotations, names.ResourceBindingNameAnnotation, marks.BindingName)
	} else {
		set(labels, names.ClusterResourceBindingPermanentIDLabel, marks.BindingID)
		set(annotations, names.ClusterResourceBindingNameAnnotation, marks.BindingName)
	}
	set(annotations, names.TemplateUIDAnnotation, string(marks.TemplateUID))
	if marks.TemplateGeneration > 0 {
		annotations[names.TemplateGenerationAnnotation] = strconv.FormatInt(marks.TemplateGeneration, 10)
	}
	annotations[names.ConflictResolutionAnnotation] = conflictResolution(annotations, marks.ConflictResolution)

	annotations[names.ManagedLabelsAnnotation] = keyList(labels)
	annotations[names.ManagedAnnotationsAnnotation] = "" // lists itself and the fingerprint, too
	annotations[FingerprintAnnotation] = ""
	annotations[names.ManagedAnnotationsAnnotation] = keyList(annotations)

	root := maps.Clone(manifest.Object)
	metadata, _ := root["metadata"].(map[string]any)
	if metadata = maps.Clone(metadata); metadata == nil {
		metadata = map[string]any{}
	}
	metadata["labels"], metadata["annotations"] = labels, annotations
	root["metadata"] = metadata
	stamped := &unstructured.Unstructured{Object: root}
	annotations[FingerprintAnnotation] = Fingerprint(stamped)
	return stamped
}

// notPropagated are annotations that mean something else on a template, or nothing.
var notPropagated = append([]string{names.ReleaseAnnotation, names.SuspendDispatchingAnnotation, names.DispatchingAnnotation, names.RolledBackToAnnotation, names.EntrySeenAnnotation}, entry.Keys...)

// conflictResolution returns the template's choice, or else the policy's.
func conflictResolution(annotations map[string]any, policy policyv1alpha1.ConflictResolution) string {
	if own := annotations[names.ConflictResolutionAnnotation]; own == conflictOverwrite || own == conflictAbort {
		return own.(string)
	}
	if policy == policyv1alpha1.ConflictOverwrite {
		return conflictOverwrite
	}
	return conflictAbort
}

func copyEntries(manifest *unstructured.Unstructured, field string) map[string]any {
	entries := maps.Clone(metadataEntries(manifest, field))
	if entries == nil {
		entries = map[string]any{}
	}
	return entries
}

func keyList(entries map[string]any) string {
	return strings.Join(slices.Sorted(maps.Keys(entries)), ",")
}
