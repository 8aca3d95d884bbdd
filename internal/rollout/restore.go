package rollout

import (
	"maps"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/merge"
)

// A workload that comes to another cell leaves its Works behind. Of a cluster that has not begun an update, only the object in the member still has its pod template.

// WithLiveTemplate returns a manifest with the pod template of the object in the member. If that is the manifest's own, apart from what the member has added, the
// manifest is returned as it is.
func WithLiveTemplate(manifest, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	merged, _, err := merge.Update(live, manifest)
	if err != nil {
		return nil, err
	}
	has, found, _ := unstructured.NestedMap(live.Object, "spec", "template")
	then, _, _ := unstructured.NestedMap(merged.Object, "spec", "template")
	if !found || apiequality.Semantic.DeepEqual(has, then) {
		return manifest, nil
	}
	root := maps.Clone(manifest.Object)
	spec, _ := root["spec"].(map[string]any)
	if spec = maps.Clone(spec); spec == nil {
		spec = map[string]any{}
	}
	spec["template"], root["spec"] = has, spec
	return &unstructured.Unstructured{Object: root}, nil
}

// Restored returns the newest command that a cluster without a Work is known to have: the one in the ledger, or that of the object in the member if it is newer or
// for another pod template. The receiver is empty if the ledger has none. Revision names the pod template of the object, for one that carries no name.
func (e *Entry) Restored(live *Copy, revision string) Entry {
	has := Entry{Seq: max(1, live.Seq), Command: live.Command}
	if live.Seq == 0 {
		has.Command.Revision = revision
		if len(e.Revisions) == 1 {
			has.Command.Revision = e.Command.Revision // it has no other
		}
	}
	if e.Seq >= has.Seq && e.Command.Revision == has.Command.Revision {
		return *e
	}
	return has
}
