package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/override"
	"github.com/cellplane/cellplane/internal/render"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Interpreter interprets objects.
type Interpreter interface {
	Prune(template *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error)
	Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error)
	ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error)
	Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Dependencies(ctx context.Context, obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error)
}

// Options are the federation that a Planner plans for. The interpreter and the clusters are required.
type Options struct {
	// Interpreter interprets objects as the engines of the federation do.
	Interpreter Interpreter
	// Clusters are the clusters of the federation.
	Clusters []*clusterv1alpha1.Cluster
	// Policies are the propagation policies of the federation, nil for none.
	Policies *policies.Index
	// Overrides and ClusterOverrides are the override policies of the federation. A policy of the plan replaces the one of
	// its name.
	Overrides        []*policyv1alpha1.OverridePolicy
	ClusterOverrides []*policyv1alpha1.ClusterOverridePolicy
	// Autoscaled reports whether an autoscaler decides about the replicas of a group; nil means none.
	Autoscaled func(key Key) bool
}

// Planner plans the adoption of groups. It is safe for concurrent use if the functions of its options are.
type Planner struct {
	Options

	snapshot  *schedule.Snapshot
	byName    map[string]*clusterv1alpha1.Cluster
	overrides overrides
}

// Item is the plan for one group. It can be carried out if it has no obstacles and is not managed.
type Item struct {
	Key Key
	// Managed means that the federation manages the group already. There is nothing to do.
	Managed bool
	// Targets are the clusters of the group, with the replicas that each has.
	Targets []Target
	// Scaled reports whether the kind has replicas.
	Scaled bool
	// LeftOut are clusters of the group whose object stays outside of the federation, because it has no replicas.
	LeftOut []string
	// Differences are the fields that differ between clusters, without replicas.
	Differences []string
	// Obstacles are sentences about what stands in the way.
	Obstacles []string

	// Template is the object to create in the federation.
	Template *unstructured.Unstructured
	// Override is nil if the clusters do not differ.
	Override *policyv1alpha1.OverridePolicy
	// Policy or ClusterPolicy places the template. Its dispatching is suspended, so that the engine's result can be
	// checked before it reaches a cluster.
	Policy        *policyv1alpha1.PropagationPolicy
	ClusterPolicy *policyv1alpha1.ClusterPropagationPolicy
}

// Target is a cluster of a group.
type Target struct {
	Cluster  string
	Replicas int32
}

// IsLeftOut reports whether the object of a cluster stays outside of the federation.
func (i *Item) IsLeftOut(cluster string) bool { return slices.Contains(i.LeftOut, cluster) }

// New returns a planner.
func New(options Options) *Planner {
	if options.Policies == nil {
		options.Policies = policies.NewIndex()
	}
	p := &Planner{
		Options: options, snapshot: schedule.Compile(options.Clusters), byName: map[string]*clusterv1alpha1.Cluster{},
		overrides: newOverrides(options.Overrides, options.ClusterOverrides),
	}
	for _, cluster := range options.Clusters {
		p.byName[cluster.Name] = cluster
	}
	return p
}

// Plan plans the adoption of a group. An error means that the group could not be examined.
func (p *Planner) Plan(ctx context.Context, group Group) (*Item, error) {
	item := &Item{Key: group.Key}
	for _, object := range group.Objects {
		item.Targets = append(item.Targets, Target{Cluster: object.Cluster})
	}
	if err := p.examine(item, group); err != nil || item.Managed {
		return item, err
	}
	members, err := p.members(ctx, item, group)
	if err != nil {
		return item, err
	}
	if err := p.divide(ctx, item, members); err != nil {
		return item, err
	}
	members = slices.DeleteFunc(members, func(m member) bool { return item.IsLeftOut(m.cluster) })
	if err := p.template(item, members); err != nil {
		return item, err
	}
	if len(item.Obstacles) > 0 {
		return item, nil
	}
	if err := p.verify(ctx, item, members); err != nil {
		return item, err
	}
	return item, p.compareTemplate(item, group.Template)
}

// compareTemplate refuses a plan if the federation has another template of that name.
func (p *Planner) compareTemplate(item *Item, existing *unstructured.Unstructured) error {
	if existing == nil {
		return nil
	}
	planned, err := strip(p.Interpreter, item.Template)
	if err != nil {
		return err
	}
	stored, err := strip(p.Interpreter, existing)
	if err != nil {
		return err
	}
	if !hasNodePorts(planned) {
		stored = withoutNodePorts(stored) // the federation allocates them
	}
	for _, d := range difference.Of(planned.Object, stored.Object) {
		if d.From == nil {
			continue // a default of the federation's API server
		}
		item.refuse("the federation has a %s of this name already, with another %s; delete or rename it", item.Key.Kind, d.Field)
		return nil
	}
	return nil
}

// member is an object of a group on its way into a plan.
type member struct {
	cluster  string
	live     *unstructured.Unstructured // as the cluster has it
	stripped *unstructured.Unstructured // what users decide, with its own replicas
	object   *unstructured.Unstructured // the same with the replicas of the template
	replicas int32
}

func (p *Planner) members(ctx context.Context, item *Item, group Group) ([]member, error) {
	members := make([]member, len(group.Objects))
	for i, object := range group.Objects {
		stripped, err := strip(p.Interpreter, object.Object)
		if err != nil {
			return nil, fmt.Errorf("in cluster %s: %w", object.Cluster, err)
		}
		replicas, requirements, err := p.Interpreter.Replicas(ctx, stripped)
		if err != nil {
			return nil, fmt.Errorf("in cluster %s: %w", object.Cluster, err)
		}
		members[i] = member{cluster: object.Cluster, live: object.Object, stripped: stripped, object: stripped, replicas: replicas}
		item.Targets[i].Replicas = replicas
		item.Scaled = item.Scaled || replicas > 0 || requirements != nil
	}
	return members, nil
}

// template chooses the most frequent variant as the template, and makes overrides for the others.
func (p *Planner) template(item *Item, members []member) error {
	base, variants := variantsOf(members)
	item.Template = variants[base].object
	for i := range variants {
		for _, d := range difference.Of(item.Template.Object, variants[i].object.Object) {
			if !slices.Contains(item.Differences, d.Field) {
				item.Differences = append(item.Differences, d.Field)
			}
		}
	}
	slices.Sort(item.Differences)
	for _, field := range item.Differences {
		if fixed(item.Key, field) {
			item.refuse("%s differs between clusters, and no cluster can change it; adopt clusters that agree, with --clusters", field)
		}
	}
	if item.Key.Namespace == "" && len(item.Differences) > 0 {
		item.refuse("%s differs between clusters; a cluster-scoped object must be the same in all of them", item.Differences[0])
	}
	if !samePorts(variants, len(members)) {
		item.Template = withoutNodePorts(item.Template)
	}
	var rules []policyv1alpha1.RuleWithCluster
	for _, variant := range variants {
		overriders, err := overridersOf(item.Template, variant.object)
		if err != nil {
			return err
		}
		if !empty(&overriders) {
			rules = append(rules, policyv1alpha1.RuleWithCluster{TargetCluster: &policyv1alpha1.ClusterAffinity{ClusterNames: variant.clusters}, Overriders: overriders})
		}
	}
	if p.autoscaled(item) {
		item.Template = item.Template.DeepCopy()
		labels := item.Template.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[names.RetainReplicasLabel] = "true"
		item.Template.SetLabels(labels)
	}
	item.setPolicies(rules)
	return nil
}

func (p *Planner) autoscaled(item *Item) bool {
	return item.Scaled && p.Autoscaled != nil && p.Autoscaled(item.Key)
}

func empty(o *policyv1alpha1.Overriders) bool {
	return len(o.Plaintext) == 0 && len(o.ImageOverrider) == 0 && len(o.LabelsOverrider) == 0 && len(o.AnnotationsOverrider) == 0
}

// verify renders the plan as an engine would, and refuses it if a cluster would get anything but what it has.
func (p *Planner) verify(ctx context.Context, item *Item, members []member) error {
	rendered, err := p.Render(ctx, item, item.Template)
	if err != nil {
		item.refuse("the federation cannot reproduce it: %v", err)
		return nil
	}
	for _, m := range members {
		changes, err := p.changes(ctx, m, rendered[m.cluster])
		if err != nil {
			return err
		}
		for _, d := range changes {
			item.refuse("%s in cluster %s would change; another policy of the federation, or its interpreter, sets it", d.Field, m.cluster)
		}
	}
	subject := &policies.Subject{GroupVersionKind: item.Key.GroupVersionKind, Namespace: item.Key.Namespace, Name: item.Key.Name, Labels: item.Template.GetLabels()}
	if other := p.rival(subject, item); other != nil {
		item.refuse("%s selects it and would place it instead; exclude it there first", other)
	}
	return nil
}

// changes returns the fields in which a manifest is not what a member has. What [strip] leaves out is no part of a template, but something else may have
// set it in the manifest.
func (p *Planner) changes(ctx context.Context, m member, manifest *unstructured.Unstructured) ([]difference.Difference, error) {
	stripped, err := strip(p.Interpreter, manifest)
	if err != nil {
		return nil, err
	}
	if changes := difference.Of(m.stripped.Object, stripped.Object); len(changes) > 0 || len(difference.Of(stripped.Object, manifest.Object)) == 0 {
		return changes, nil
	}
	merged, _, err := render.Merge(ctx, p.Interpreter, merge.New(), m.live, merge.Stamp(manifest, merge.Marks{}))
	if err != nil {
		return nil, fmt.Errorf("in cluster %s: %w", m.cluster, err)
	}
	return difference.Between(m.live, merged), nil
}

// rival returns the policy that would win over the plan's, or nil.
func (p *Planner) rival(subject *policies.Subject, item *Item) *policies.Policy {
	chosen, _ := p.Policies.Choose(subject, policies.Options{})
	switch {
	case chosen == nil, chosen.Name == item.PolicyName() && chosen.Namespace == item.Key.Namespace:
		return nil
	case chosen.Namespace == "" && item.Key.Namespace != "":
		return nil // a policy of the namespace wins over those of the cluster
	case ptr.Deref(chosen.Spec.Priority, 0) > 0, selectsByName(chosen, subject):
		return chosen
	default:
		return nil // a name is narrower than anything else
	}
}

func selectsByName(policy *policies.Policy, subject *policies.Subject) bool {
	return slices.ContainsFunc(policy.Spec.ResourceSelectors, func(s policyv1alpha1.ResourceSelector) bool {
		return s.Kind == subject.Kind && s.Name == subject.Name
	})
}

// Render returns the template as an engine would send it to each cluster, before it is stamped. The template is that of
// the plan, or as the federation stores it.
func (p *Planner) Render(ctx context.Context, item *Item, template *unstructured.Unstructured) (map[string]*unstructured.Unstructured, error) {
	spec, err := p.binding(ctx, item, template)
	if err != nil {
		return nil, err
	}
	result, err := schedule.Plan(schedule.Request{Spec: spec, Snapshot: p.snapshot}, nil)
	if err != nil {
		return nil, err
	}
	if got, want := describe(result.Clusters), describeTargets(item, spec); got != want {
		return nil, fmt.Errorf("the scheduler would place it as %s instead of %s", got, want)
	}
	pruned, err := p.Interpreter.Prune(template)
	if err != nil {
		return nil, err
	}
	spec.Clusters = result.Clusters
	return p.manifests(ctx, pruned, spec, p.overrides.with(item))
}

// RenderPlaced returns the template as an engine would send it to the clusters of a binding that is placed already. The policies are the overrides to
// apply.
func (p *Planner) RenderPlaced(ctx context.Context, template *unstructured.Unstructured, placed *workv1alpha2.ResourceBindingSpec, overrides *override.Set) (map[string]*unstructured.Unstructured, error) {
	pruned, err := p.Interpreter.Prune(template)
	if err != nil {
		return nil, err
	}
	return p.manifests(ctx, pruned, placed, overrides)
}

func (p *Planner) manifests(ctx context.Context, pruned *unstructured.Unstructured, spec *workv1alpha2.ResourceBindingSpec, overrides *override.Set) (map[string]*unstructured.Unstructured, error) {
	renderer, err := render.New(p.Interpreter, pruned, spec)
	if err != nil {
		return nil, err
	}
	manifests := make(map[string]*unstructured.Unstructured, len(spec.Clusters))
	for _, target := range spec.Clusters {
		manifest, _, err := renderer.Manifest(ctx, overrides, p.byName[target.Name], target.Replicas)
		if err != nil {
			return nil, err
		}
		manifests[target.Name] = manifest
	}
	return manifests, nil
}

// binding returns the spec of the binding that a detector would make.
func (p *Planner) binding(ctx context.Context, item *Item, template *unstructured.Unstructured) (*workv1alpha2.ResourceBindingSpec, error) {
	apiVersion, kind := item.Key.ToAPIVersionAndKind()
	spec := &workv1alpha2.ResourceBindingSpec{
		Resource:  workv1alpha2.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: item.Key.Namespace, Name: item.Key.Name},
		Placement: &item.propagation().Placement,
	}
	var err error
	if spec.Replicas, spec.ReplicaRequirements, err = p.Interpreter.Replicas(ctx, template); err != nil {
		return nil, err
	}
	components, err := p.Interpreter.Components(ctx, template)
	if err != nil {
		return nil, err
	}
	if len(components) > 1 || len(components) == 1 && spec.Replicas == 0 {
		spec.Components = components
	}
	return spec, nil
}

func describe(targets []workv1alpha2.TargetCluster) string {
	parts := make([]string, len(targets))
	for i := range targets {
		parts[i] = fmt.Sprintf("%s:%d", targets[i].Name, targets[i].Replicas)
	}
	return strings.Join(parts, " ")
}

// describeTargets describes what the scheduler has to decide.
func describeTargets(item *Item, spec *workv1alpha2.ResourceBindingSpec) string {
	var targets []workv1alpha2.TargetCluster
	for _, target := range item.Targets {
		if item.IsLeftOut(target.Cluster) {
			continue
		}
		replicas := spec.Replicas
		if schedule.Divided(spec.Placement) {
			replicas = target.Replicas
		}
		targets = append(targets, workv1alpha2.TargetCluster{Name: target.Cluster, Replicas: replicas})
	}
	return describe(targets)
}

// refuse records an obstacle.
func (i *Item) refuse(format string, args ...any) {
	i.Obstacles = append(i.Obstacles, fmt.Sprintf(format, args...))
}
