package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/render"
	"github.com/cellplane/cellplane/internal/workwatch"
)

// rehearsal is what the federation would change in one cluster.
type rehearsal struct {
	cluster string
	changes []difference.Difference
	err     error // it could not be rehearsed
}

// clean reports whether nothing would change anywhere.
func clean(rehearsals []rehearsal) bool {
	return !slices.ContainsFunc(rehearsals, func(r rehearsal) bool { return r.err != nil || len(r.changes) > 0 })
}

// rehearse writes what the federation would write to each cluster as a dry run. What its engine has rendered for a cluster is used instead of what the plan expects.
func (a *adoption) rehearse(ctx context.Context, group adopt.Group, item *adopt.Item, fromEngine map[string]*unstructured.Unstructured) ([]rehearsal, error) {
	stored, err := a.storedTemplate(ctx, group, item)
	if err != nil {
		return nil, err
	}
	rendered, err := a.planner.Render(ctx, item, stored)
	if err != nil {
		return nil, err
	}
	var rehearsals []rehearsal
	for _, object := range group.Objects {
		manifest := rendered[object.Cluster]
		if manifest == nil {
			continue // left out
		}
		stamped := fromEngine[object.Cluster]
		if stamped == nil {
			stamped = merge.Stamp(manifest, marksOf(item, object.Cluster))
		}
		changes, err := a.rehearseIn(ctx, object, stamped)
		rehearsals = append(rehearsals, rehearsal{object.Cluster, changes, err})
	}
	return rehearsals, nil
}

// storedTemplate returns the template as the federation has it or would store it.
func (a *adoption) storedTemplate(ctx context.Context, group adopt.Group, item *adopt.Item) (*unstructured.Unstructured, error) {
	if group.Template != nil {
		return group.Template, nil
	}
	if item.Key.Namespace != "" && !a.namespaceExists.Load() {
		return item.Template, nil
	}
	stored, err := a.create(ctx, item, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, fmt.Errorf("the federation refuses the template: %w", err)
	}
	return stored, nil
}

// namespaceDelay is how long a new namespace may take to reach all cells.
const namespaceDelay = 30 * time.Second

// create creates the template. It waits for a namespace that was created a moment ago.
func (a *adoption) create(ctx context.Context, item *adopt.Item, options metav1.CreateOptions) (created *unstructured.Unstructured, err error) {
	resource, err := a.resource(item.Key.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	templates := a.templates.Resource(resource).Namespace(item.Key.Namespace)
	waitErr := wait.PollUntilContextTimeout(ctx, adoptionPoll, namespaceDelay, true, func(ctx context.Context) (bool, error) {
		created, err = templates.Create(ctx, item.Template, options)
		return !apierrors.IsNotFound(err), nil
	})
	if waitErr != nil && err == nil {
		err = waitErr
	}
	return created, err
}

func (a *adoption) resource(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	mapping, err := a.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("finding the kind %s in the federation: %w", gvk.Kind, err)
	}
	return mapping.Resource, nil
}

// marksOf returns the marks of a Work that does not exist yet. Its IDs are not known.
func marksOf(item *adopt.Item, cluster string) merge.Marks {
	return merge.Marks{
		WorkNamespace: names.ExecutionNamespace(cluster), WorkName: workName(item), WorkID: "rehearsal",
		BindingNamespace: item.Key.Namespace, BindingName: names.BindingName(item.Key.Kind, item.Key.Name), BindingID: "rehearsal",
		ConflictResolution: policyv1alpha1.ConflictOverwrite,
	}
}

// renderedSoFar returns the manifests that the engine has rendered, by cluster, and a cluster for which it has not yet. Before there is a template there are none.
// Works are read only if none was seen: those of the other clusters will be.
func (a *adoption) renderedSoFar(ctx context.Context, group adopt.Group, item *adopt.Item, seen workwatch.Seen) (manifests map[string]*unstructured.Unstructured, missing string, err error) {
	manifests = map[string]*unstructured.Unstructured{}
	if group.Template == nil {
		return manifests, "", nil
	}
	for _, target := range item.Targets {
		if item.IsLeftOut(target.Cluster) {
			continue
		}
		manifest, err := manifestOf(seen[names.ExecutionNamespace(target.Cluster)])
		if len(seen) == 0 {
			manifest, err = a.rendered(ctx, item, target.Cluster)
		}
		if err != nil || manifest == nil {
			return manifests, target.Cluster, err
		}
		manifests[target.Cluster] = manifest
	}
	return manifests, "", nil
}

// rendered returns the manifest that the engine has rendered for a cluster, nil if it has not yet.
func (a *adoption) rendered(ctx context.Context, item *adopt.Item, cluster string) (*unstructured.Unstructured, error) {
	work := &unstructured.Unstructured{}
	work.SetGroupVersionKind(workv1alpha1.GroupVersion.WithKind("Work"))
	key := client.ObjectKey{Namespace: names.ExecutionNamespace(cluster), Name: workName(item)}
	if err := a.client.Get(ctx, key, work); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return manifestOf(work)
}

// manifestOf returns the manifest in a Work, nil if there is no Work.
func manifestOf(work *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if work == nil {
		return nil, nil
	}
	manifests, _, err := unstructured.NestedSlice(work.Object, "spec", "workload", "manifests")
	if err != nil {
		return nil, fmt.Errorf("reading Work %s/%s: %w", work.GetNamespace(), work.GetName(), err)
	}
	if len(manifests) != 1 {
		return nil, fmt.Errorf("work %s/%s has %d manifests instead of one", work.GetNamespace(), work.GetName(), len(manifests))
	}
	manifest, is := manifests[0].(map[string]any)
	if !is {
		return nil, fmt.Errorf("the manifest in Work %s/%s is not an object", work.GetNamespace(), work.GetName())
	}
	return (&unstructured.Unstructured{Object: manifest}).DeepCopy(), nil
}

// rehearsalAttempts bounds how often an object is read again because it has changed.
const rehearsalAttempts = 5

// rehearseIn writes a manifest as a dry run and returns what it changes.
func (a *adoption) rehearseIn(ctx context.Context, object adopt.Object, stamped *unstructured.Unstructured) ([]difference.Difference, error) {
	resource, err := a.resource(stamped.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	merger, err := a.mergers.of(ctx, resource, stamped.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	member := a.members[object.Cluster].Resource(resource).Namespace(stamped.GetNamespace())
	live := object.Object
	for attempt := 1; ; attempt++ {
		merged, changed, err := render.Merge(ctx, a.interpreters, merger, live, stamped)
		if err != nil || !changed {
			return nil, err
		}
		updated, err := member.Update(ctx, merged, metav1.UpdateOptions{FieldManager: merge.FieldManager, DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsConflict(err) && attempt < rehearsalAttempts {
			if live, err = member.Get(ctx, stamped.GetName(), metav1.GetOptions{}); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		return difference.Between(live, updated), nil
	}
}

// describeRehearsal returns a line for each cluster, and whether nothing would change.
func (a *adoption) describeRehearsal(ctx context.Context, group adopt.Group, item *adopt.Item) (lines []string, same bool) {
	if item.Managed {
		rehearsals, err := a.rehearseManaged(ctx, group, item)
		if err != nil {
			return []string{"  managed already, but it cannot be compared: " + err.Error()}, false
		}
		lines = append([]string{"  managed already"}, describeRehearsals(item.Key, rehearsals)...)
		return append(lines, openEntries(group)...), clean(rehearsals)
	}
	for _, obstacle := range item.Obstacles {
		lines = append(lines, "  cannot be adopted: "+obstacle)
	}
	if len(lines) > 0 {
		return lines, false
	}
	fromEngine, _, err := a.renderedSoFar(ctx, group, item, nil)
	var rehearsals []rehearsal
	if err == nil {
		rehearsals, err = a.rehearse(ctx, group, item, fromEngine)
	}
	if err != nil {
		return []string{"  cannot be adopted: " + err.Error()}, false
	}
	lines = describeRehearsals(item.Key, rehearsals)
	for _, cluster := range item.LeftOut {
		lines = append(lines, fmt.Sprintf("  %s: left out, it has no replicas", cluster))
	}
	return lines, clean(rehearsals)
}

// rehearseManaged writes what the engine has rendered for each cluster as a dry run. What it changes has drifted, or the engine does not write to it.
func (a *adoption) rehearseManaged(ctx context.Context, group adopt.Group, item *adopt.Item) ([]rehearsal, error) {
	var rehearsals []rehearsal
	for _, object := range group.Objects {
		manifest, err := a.rendered(ctx, item, object.Cluster)
		if err != nil {
			return nil, err
		}
		if manifest == nil {
			rehearsals = append(rehearsals, rehearsal{cluster: object.Cluster, err: errors.New("the federation has no Work for it")})
			continue
		}
		changes, err := a.rehearseIn(ctx, object, manifest)
		rehearsals = append(rehearsals, rehearsal{object.Cluster, changes, err})
	}
	return rehearsals, nil
}

// openEntries returns a line for each cluster in which the object is out of the federation's hands.
func openEntries(group adopt.Group) (lines []string) {
	for _, object := range group.Objects {
		if open, is := entry.Of(object.Object.GetAnnotations()); is {
			lines = append(lines, fmt.Sprintf("  %s: it is %s; the federation does not write to it", object.Cluster, open.Describe(time.Now())))
		}
	}
	return lines
}

// describeRehearsals returns a line for each cluster that would not change, and for each field that would.
func describeRehearsals(key adopt.Key, rehearsals []rehearsal) (lines []string) {
	for _, r := range rehearsals {
		switch {
		case r.err != nil:
			lines = append(lines, fmt.Sprintf("  %s: cannot be rehearsed: %v", r.cluster, r.err))
		case len(r.changes) == 0:
			lines = append(lines, fmt.Sprintf("  %s: no change", r.cluster))
		}
		for _, change := range r.changes {
			lines = append(lines, fmt.Sprintf("  %s: %s", r.cluster, change.Describe(key.Kind)))
		}
	}
	return lines
}

// mergers has a merger for every kind, as engines do: custom kinds have their lists' keys in their definitions.
type mergers struct {
	client client.Client

	mu     sync.Mutex
	custom map[schema.GroupVersionKind]*merge.Merger
}

func (m *mergers) of(ctx context.Context, resource schema.GroupVersionResource, gvk schema.GroupVersionKind) (*merge.Merger, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.custom[gvk]; known != nil {
		return known, nil
	}
	merger := merge.New()
	if !clientgoscheme.Scheme.Recognizes(gvk) {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		err := m.client.Get(ctx, client.ObjectKey{Name: resource.GroupResource().String()}, definition)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("reading the definition of %s: %w", gvk.Kind, err)
		}
		if err == nil {
			// Without a usable schema, the managed fields of objects decide, as in engines.
			if types, err := merge.TypesOf(definition, gvk.Version); err == nil {
				merger = merge.New(types)
			}
		}
	}
	if m.custom == nil {
		m.custom = map[schema.GroupVersionKind]*merge.Merger{}
	}
	m.custom[gvk] = merger
	return merger, nil
}
