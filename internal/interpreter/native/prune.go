package native

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// prunedMetadata is what an API server or the control plane's own controllers put on a template.
var prunedMetadata = []string{
	"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation", "managedFields",
	"ownerReferences", "resourceVersion", "selfLink", "uid",
}

// Prune returns a template without the fields that this control plane generated and that a member generates for
// itself.
func Prune(template *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	root := maps.Clone(template.Object)
	delete(root, "status")
	metadata, found, err := fields.Map(root, "metadata")
	if err != nil {
		return nil, err
	}
	if found {
		metadata = maps.Clone(metadata)
		for _, name := range prunedMetadata {
			delete(metadata, name)
		}
		root["metadata"] = metadata
		// The origin of a template is internal to the control plane; in a member it would look like a change.
		root = fields.Without(root, "metadata", "annotations", names.MovedFromAnnotation)
	}
	version := template.GetAPIVersion()
	switch kind := template.GetKind(); {
	case kind == "Deployment" && version == "apps/v1":
		root = fields.Without(root, "metadata", "annotations", revisionAnnotation)
		root = fields.Without(root, "metadata", "annotations", revisionHistoryAnnotation)
	case kind == "Job" && version == "batch/v1":
		root, err = pruneJob(root)
	case kind == "Secret" && version == "v1":
		root, err = pruneSecret(root)
	case kind == "ServiceAccount" && version == "v1":
		root, err = pruneServiceAccount(root)
	case kind == "Service" && version == "v1":
		root, err = pruneService(root)
	case kind == "PersistentVolumeClaim" && version == "v1":
		root = fields.Without(root, "metadata", "annotations", selectedNodeAnnotation)
	}
	if err != nil {
		return nil, err
	}
	return fields.Object(root), nil
}

// pruneJob also drops the time to live: a member that deleted a finished Job would see it created and run again.
func pruneJob(root map[string]any) (map[string]any, error) {
	root = fields.Without(root, "spec", "ttlSecondsAfterFinished")
	manual, _, err := fields.Bool(root, "spec", "manualSelector")
	if err != nil || manual {
		return root, err
	}
	for _, label := range generatedJobLabels {
		root = fields.Without(root, "spec", "selector", "matchLabels", label)
		root = fields.Without(root, "spec", "template", "metadata", "labels", label)
	}
	// The rest of a generated selector selects nothing, and an empty one would be rejected.
	selector, found, err := fields.Map(root, "spec", "selector")
	if err != nil || !found {
		return root, err
	}
	labels, _, err := fields.Map(selector, "matchLabels")
	if err != nil {
		return nil, fields.Under("spec.selector", err)
	}
	if len(labels) == 0 && selector["matchExpressions"] == nil {
		root = fields.Without(root, "spec", "selector")
	}
	return root, nil
}

func pruneSecret(root map[string]any) (map[string]any, error) {
	kind, _, err := fields.String(root, "type")
	if err != nil || kind != serviceAccountTokenType {
		return root, err
	}
	root = fields.Without(root, "metadata", "annotations", serviceAccountUIDKey)
	return fields.Without(root, "data"), nil
}

func pruneServiceAccount(root map[string]any) (map[string]any, error) {
	name, _, err := fields.String(root, "metadata", "name")
	if err != nil {
		return nil, err
	}
	secrets, err := fields.Objects(root, "secrets")
	if err != nil || len(secrets) == 0 {
		return root, err
	}
	var kept []any
	for i, ref := range secrets {
		secretName, _, err := fields.String(ref, "name")
		if err != nil {
			return nil, fields.Under("secrets"+fields.Index(i), err)
		}
		if !strings.HasPrefix(secretName, name+"-token-") {
			kept = append(kept, ref)
		}
	}
	if len(kept) == 0 {
		return fields.Without(root, "secrets"), nil
	}
	return fields.With(root, kept, "secrets")
}

// pruneService lets each member allocate its own address; headless Services stay headless.
func pruneService(root map[string]any) (map[string]any, error) {
	address, found, err := fields.String(root, "spec", "clusterIP")
	if err != nil || !found || address == "None" {
		return root, err
	}
	root = fields.Without(root, "spec", "clusterIP")
	return fields.Without(root, "spec", "clusterIPs"), nil
}
