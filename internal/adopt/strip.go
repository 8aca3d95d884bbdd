package adopt

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// assigned are fields that a member assigns and that engines retain, in addition to those that are pruned from every
// template.
var assigned = map[string][][]string{
	"v1 Service":               {{"spec", "healthCheckNodePort"}},
	"v1 PersistentVolume":      {{"spec", "claimRef"}},
	"v1 PersistentVolumeClaim": {{"spec", "volumeName"}},
}

// volatile are annotations that clients and controllers of a cluster keep for themselves.
var volatile = map[string]bool{
	corev1.LastAppliedConfigAnnotation:              true,
	"deprecated.daemonset.template.generation":      true,
	"control-plane.alpha.kubernetes.io/leader":      true,
	"pv.kubernetes.io/bind-completed":               true,
	"pv.kubernetes.io/bound-by-controller":          true,
	"pv.kubernetes.io/provisioned-by":               true,
	"volume.beta.kubernetes.io/storage-provisioner": true,
	"volume.kubernetes.io/storage-provisioner":      true,
}

// strip returns what users decide about an object: without what its API server or controllers of its cluster set, and
// without marks of a federation. The object stays as it is.
func strip(interpreter Interpreter, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	pruned, err := interpreter.Prune(obj)
	if err != nil {
		return nil, err
	}
	root := pruned.Object
	for _, path := range assigned[obj.GetAPIVersion()+" "+obj.GetKind()] {
		root = fields.Without(root, path...)
	}
	root, _ = difference.WithoutNulls(root).(map[string]any)
	metadata, found, err := fields.Map(root, "metadata")
	if err != nil || !found {
		return fields.Object(root), err
	}
	metadata = maps.Clone(metadata)
	delete(metadata, "generateName")
	for _, name := range []string{"labels", "annotations"} {
		entries, _, err := fields.Map(metadata, name)
		if err != nil {
			return nil, fields.Under("metadata", err)
		}
		kept := maps.Clone(entries)
		maps.DeleteFunc(kept, func(key string, _ any) bool { return names.IsMark(key) || name == "annotations" && volatile[key] })
		if len(kept) == 0 {
			delete(metadata, name)
		} else {
			metadata[name] = kept
		}
	}
	root = maps.Clone(root)
	root["metadata"] = metadata
	return fields.Object(root), nil
}
