package render

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/override"
	"github.com/cellplane/cellplane/internal/rights"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Reviser sets the replicas of an object.
type Reviser interface {
	ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error)
}

// Renderer renders one template for the clusters of its binding.
type Renderer struct {
	interpreter Reviser
	spec        *workv1alpha2.ResourceBindingSpec
	pruned      *unstructured.Unstructured
	completions map[string]int32
}

// New returns a Renderer for a pruned template and the spec of its binding.
func New(interpreter Reviser, pruned *unstructured.Unstructured, spec *workv1alpha2.ResourceBindingSpec) (*Renderer, error) {
	completions, err := divideCompletions(pruned, spec)
	if err != nil {
		return nil, err
	}
	return &Renderer{interpreter: interpreter, spec: spec, pruned: pruned, completions: completions}, nil
}

// Manifest returns the template as a cluster should get it, and a record of the applied overrides. Errors of overrides
// are of type [*OverrideError]; such an error may come with a manifest, see [override.Set.Apply].
func (r *Renderer) Manifest(ctx context.Context, overrides *override.Set, cluster *clusterv1alpha1.Cluster, replicas int32) (*unstructured.Unstructured, override.Trace, error) {
	manifest := r.pruned
	var err error
	if isWorkload(r.spec) {
		if manifest, err = r.interpreter.ReviseReplica(ctx, manifest, replicas); err != nil {
			return nil, override.Trace{}, err
		}
	}
	if share, divided := r.completions[cluster.Name]; divided {
		manifest = manifest.DeepCopy()
		if err := unstructured.SetNestedField(manifest.Object, int64(share), "spec", "completions"); err != nil {
			return nil, override.Trace{}, err
		}
	}
	manifest = carryState(r.spec, cluster.Name, manifest)
	if err := rights.Check("its interpreter", manifest, r.pruned); err != nil {
		return nil, override.Trace{}, err
	}
	manifest, trace, err := overrides.Apply(manifest, cluster)
	if err != nil {
		return manifest, trace, &OverrideError{err}
	}
	return manifest, trace, nil
}

// OverrideError is the error of an override.
type OverrideError struct{ err error }

// Error implements error.
func (e *OverrideError) Error() string { return e.err.Error() }

// Unwrap returns the error of the override.
func (e *OverrideError) Unwrap() error { return e.err }

// isWorkload reports whether a template has replicas that are divided among clusters. A template with several
// components is propagated as a whole.
func isWorkload(spec *workv1alpha2.ResourceBindingSpec) bool {
	return len(spec.Components) == 0 && (spec.Replicas > 0 || spec.ReplicaRequirements != nil)
}

// carryState labels the new copy of a workload with the preserved state of the old one. That is possible only if there
// is one copy at a time: the old one is deleted first, and there is a single new one.
func carryState(spec *workv1alpha2.ResourceBindingSpec, cluster string, manifest *unstructured.Unstructured) *unstructured.Unstructured {
	if len(spec.GracefulEvictionTasks) == 0 || len(spec.Clusters) != 1 {
		return manifest
	}
	last := &spec.GracefulEvictionTasks[len(spec.GracefulEvictionTasks)-1]
	if last.PurgeMode != policyv1alpha1.PurgeModeDirectly || len(last.PreservedLabelState) == 0 || slices.Contains(last.ClustersBeforeFailover, cluster) {
		return manifest
	}
	manifest = manifest.DeepCopy()
	labels := manifest.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, last.PreservedLabelState)
	manifest.SetLabels(labels)
	return manifest
}

// divideCompletions divides the completions of a Job like its parallelism, by largest remainder. It returns nil for
// anything but a Job with divided replicas.
func divideCompletions(obj *unstructured.Unstructured, spec *workv1alpha2.ResourceBindingSpec) (map[string]int32, error) {
	if obj.GetKind() != "Job" || obj.GetAPIVersion() != "batch/v1" || spec.Placement == nil || !schedule.Divided(spec.Placement) {
		return nil, nil
	}
	completions, found, err := unstructured.NestedInt64(obj.Object, "spec", "completions")
	if err != nil {
		return nil, err
	}
	if !found || completions < 0 || completions > 1<<31-1 {
		return nil, nil
	}
	weights := map[string]int64{}
	for i := range spec.Clusters {
		weights[spec.Clusters[i].Name] = int64(spec.Clusters[i].Replicas)
	}
	return schedule.Apportion(int32(completions), weights, string(spec.Resource.UID)), nil
}
