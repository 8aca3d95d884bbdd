package revisions

import (
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/slots"
)

// The kinds of workloads and of their revisions.
var (
	Deployment         = appsv1.SchemeGroupVersion.WithKind("Deployment")
	StatefulSet        = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	ReplicaSet         = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	ControllerRevision = appsv1.SchemeGroupVersion.WithKind("ControllerRevision")
)

// KindOf returns the kind of the revisions of a kind of workloads, and whether it has any.
func KindOf(workload schema.GroupVersionKind) (schema.GroupVersionKind, bool) {
	switch workload {
	case Deployment:
		return ReplicaSet, true
	case StatefulSet:
		return ControllerRevision, true
	default:
		return schema.GroupVersionKind{}, false
	}
}

// NumberAnnotation is the number of a revision of a Deployment.
const NumberAnnotation = "deployment.kubernetes.io/revision"

const (
	// patchField marks the pod template in a ControllerRevision as one that replaces all others.
	patchField, patchReplace = "$patch", "replace"
	// longestPrefix is how much of the name of a workload fits into the name of a revision.
	longestPrefix = 223
	defaultLimit  = 10
)

// Record is what a stored revision, or a workload, says.
type Record struct {
	// Number of the revision; 0 if it has none.
	Number int64
	// Template identifies the pod template. Equal ones are identified equally.
	Template string
	// Annotations identify the annotations of a Deployment. Its newest revision follows them; those of a StatefulSet keep the ones they began with.
	Annotations string
}

// Read reads a stored revision.
func Read(revision *unstructured.Unstructured) Record {
	r := Present(revision)
	if revision.GroupVersionKind() == ControllerRevision {
		r.Number, _, _ = unstructured.NestedInt64(revision.Object, "revision")
	} else {
		r.Number, _ = strconv.ParseInt(revision.GetAnnotations()[NumberAnnotation], 10, 64)
	}
	return r
}

// Present returns what the newest revision of a workload has to say; its number is not known.
func Present(workload *unstructured.Unstructured) Record {
	r := Record{Template: identify(PodTemplate(workload))}
	if kind := workload.GroupVersionKind(); kind == Deployment || kind == ReplicaSet {
		r.Annotations = identifyTexts(followed(workload))
	}
	return r
}

// Limit returns how many revisions are kept besides the newest.
func Limit(workload *unstructured.Unstructured) int {
	limit, set, err := unstructured.NestedInt64(workload.Object, "spec", "revisionHistoryLimit")
	if err != nil || !set || limit < 0 {
		return defaultLimit
	}
	return int(limit)
}

// Paused reports whether a workload is paused. Its pod template may be edited several times then, for one revision.
func Paused(workload *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(workload.Object, "spec", "paused")
	return paused
}

// Names yields names for the present revision of a workload, always the same ones. By its name a revision is in the slot of the workload, so that both are always
// in the same cell.
func Names(workload *unstructured.Unstructured) iter.Seq[string] {
	namespace, name := workload.GetNamespace(), workload.GetName()
	prefix := name[:min(len(name), longestPrefix)] + "-"
	return slots.Named(namespace, prefix, slots.Of(namespace, name), xxhash.Sum64String(identify(PodTemplate(workload))))
}

// New returns the present revision of a workload, to be stored.
func New(workload *unstructured.Unstructured, name string, number int64) (*unstructured.Unstructured, error) {
	kind, known := KindOf(workload.GroupVersionKind())
	template := PodTemplate(workload)
	if !known || template == nil {
		return nil, fmt.Errorf("%s %s/%s has no pod template", workload.GetKind(), workload.GetNamespace(), workload.GetName())
	}
	hash := name[strings.LastIndexByte(name, '-')+1:]
	labels, _, err := unstructured.NestedStringMap(template, "metadata", "labels")
	if err != nil {
		return nil, fmt.Errorf("reading the labels of the pod template: %w", err)
	}
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, names.RebalanceStatusLabel)
	labels[names.RevisionOfLabel] = string(workload.GetUID())

	r := &unstructured.Unstructured{Object: map[string]any{}}
	r.SetGroupVersionKind(kind)
	r.SetNamespace(workload.GetNamespace())
	r.SetName(name)
	r.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: workload.GetAPIVersion(), Kind: workload.GetKind(), Name: workload.GetName(), UID: workload.GetUID(), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}})
	if kind == ReplicaSet {
		labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		err = setReplicaSet(r, workload, template, hash)
	} else {
		labels[appsv1.ControllerRevisionHashLabelKey] = hash
		template[patchField] = patchReplace
		r.Object["data"] = map[string]any{"spec": map[string]any{"template": template}}
	}
	r.SetLabels(labels)
	r.SetAnnotations(followed(workload))
	Renew(r, workload, number)
	return r, err
}

// setReplicaSet sets the spec of a ReplicaSet. Its selector has the hash, as those of the deployment controller have: otherwise it would select the pods of
// all revisions.
func setReplicaSet(r, workload *unstructured.Unstructured, template map[string]any, hash string) error {
	selector, _, err := unstructured.NestedMap(workload.Object, "spec", "selector")
	if err != nil {
		return fmt.Errorf("reading the selector: %w", err)
	}
	for _, in := range []struct {
		object map[string]any
		path   []string
	}{{selector, []string{"matchLabels"}}, {template, []string{"metadata", "labels"}}} {
		if err := unstructured.SetNestedField(in.object, hash, append(in.path, appsv1.DefaultDeploymentUniqueLabelKey)...); err != nil {
			return fmt.Errorf("adding the hash of the pod template: %w", err)
		}
	}
	r.Object["spec"] = map[string]any{"replicas": int64(0), "selector": selector, "template": template}
	return nil
}

// Renew gives a revision the number of the present revision of its workload, and that of a Deployment its annotations.
func Renew(revision, workload *unstructured.Unstructured, number int64) {
	if revision.GroupVersionKind() == ControllerRevision {
		revision.Object["revision"] = number
		return
	}
	annotations := followed(workload)
	for name, value := range revision.GetAnnotations() {
		if !follows(name) {
			annotations[name] = value
		}
	}
	annotations[NumberAnnotation] = strconv.FormatInt(number, 10)
	revision.SetAnnotations(annotations)
}

// PodTemplate returns a copy of the pod template of a workload or a revision, without what only revisions have.
func PodTemplate(obj *unstructured.Unstructured) map[string]any {
	path := []string{"spec", "template"}
	if obj.GroupVersionKind() == ControllerRevision {
		path = append([]string{"data"}, path...)
	}
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	template, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	template = runtime.DeepCopyJSON(template)
	delete(template, patchField)
	if metadata, ok := template["metadata"].(map[string]any); ok {
		if metadata["creationTimestamp"] == nil {
			delete(metadata, "creationTimestamp") // API servers before 1.34 write it as null
		}
		if labels, ok := metadata["labels"].(map[string]any); ok {
			delete(labels, appsv1.DefaultDeploymentUniqueLabelKey)
		}
	}
	return template
}

func identify(template map[string]any) string {
	return merge.Fingerprint(&unstructured.Unstructured{Object: map[string]any{"template": template}})
}

// followed returns a copy of the annotations that a revision has of its workload.
func followed(obj *unstructured.Unstructured) map[string]string {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.DeleteFunc(annotations, func(name, _ string) bool { return !follows(name) })
	return annotations
}

func identifyTexts(texts map[string]string) string {
	values := make(map[string]any, len(texts))
	for name, value := range texts {
		values[name] = value
	}
	return merge.Fingerprint(&unstructured.Unstructured{Object: map[string]any{"texts": values}})
}

// follows reports whether a revision has an annotation of its workload. To undo an update replaces all annotations of the workload by those of the revision, except
// some that belong to the deployment controller and to kubectl apply. So it must not bring back what was meant for one moment: a way past protection, or a release. The engine keeps the name of an autoscaler up to date.
func follows(annotation string) bool {
	switch annotation {
	case corev1.LastAppliedConfigAnnotation, appsv1.DeprecatedRollbackTo, names.MovedFromAnnotation, names.CopiedAtAnnotation, names.BreakGlassAnnotation, names.ReleaseAnnotation, names.RolledBackToAnnotation,
		names.AutoscaledByAnnotation:
		return false
	default:
		return !strings.HasPrefix(annotation, "deployment.kubernetes.io/")
	}
}
