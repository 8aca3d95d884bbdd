package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/workwatch"
)

// adoption is a federation and the members that objects are adopted from.
type adoption struct {
	flags        *adoptFlags
	client       client.Client     // the federation
	templates    dynamic.Interface // the federation
	members      map[string]dynamic.Interface
	interpreters *interpreter.Interpreter
	planner      *adopt.Planner
	further      []schema.GroupVersionResource
	clusterWide  map[schema.GroupVersionResource]bool // the cluster-scoped ones
	mergers      mergers
	works        func() *workwatch.Watch // begins with the first use

	namespaceExists atomic.Bool
	autoscaled      map[adopt.Named]bool
	related         *adopt.Relations // of the groups that were planned
}

// openAdoption reads what the plans depend on.
func openAdoption(ctx context.Context, flags *adoptFlags) (*adoption, error) {
	config, err := flags.config()
	if err != nil {
		return nil, err
	}
	a := &adoption{flags: flags, members: map[string]dynamic.Interface{}, interpreters: interpreter.New(interpreter.Options{}), autoscaled: map[adopt.Named]bool{}}
	if a.client, err = newClient(config); err != nil {
		return nil, err
	}
	if a.templates, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connecting to the federation: %w", err)
	}
	a.mergers.client = a.client
	a.works = sync.OnceValue(func() *workwatch.Watch { return workwatch.New(ctx, a.templates) })
	if a.further, err = resourcesOf(config, flags.resources); err != nil {
		return nil, err
	}
	if err := a.findScopes(); err != nil {
		return nil, err
	}
	if a.planner, err = a.newPlanner(ctx); err != nil {
		return nil, fmt.Errorf("reading the federation: %w", err)
	}
	if err := a.connect(config); err != nil {
		return nil, err
	}
	namespace := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	err = a.client.Get(ctx, client.ObjectKey{Name: flags.namespace}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", flags.namespace, err)
	}
	a.namespaceExists.Store(err == nil)
	return a, nil
}

// resourcesOf finds kinds by their resource or short names.
func resourcesOf(config *rest.Config, given []string) ([]schema.GroupVersionResource, error) {
	var found []schema.GroupVersionResource
	for _, name := range given {
		resource, err := resourceOf(config, name)
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("--resource: the federation does not have the kind %q; create its CustomResourceDefinition there first", name)
		}
		if err != nil {
			return nil, fmt.Errorf("--resource: finding the kind %q: %w", name, err)
		}
		found = append(found, resource)
	}
	return found, nil
}

// resourceOf finds a kind by its resource or short name.
func resourceOf(config *rest.Config, name string) (schema.GroupVersionResource, error) {
	mapper, err := shortNames(config)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return mapper.ResourceFor(schema.ParseGroupResource(name).WithVersion(""))
}

// scopedResourceOf also tells whether the kind is namespaced.
func scopedResourceOf(config *rest.Config, name string) (resource schema.GroupVersionResource, namespaced bool, err error) {
	mapper, err := shortNames(config)
	if err != nil {
		return resource, false, err
	}
	if resource, err = mapper.ResourceFor(schema.ParseGroupResource(name).WithVersion("")); err != nil {
		return resource, false, err
	}
	kind, err := mapper.KindFor(resource)
	if err != nil {
		return resource, false, err
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return resource, false, err
	}
	return resource, mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// shortNames returns a mapper that knows resources by their short names, too.
func shortNames(config *rest.Config) (meta.RESTMapper, error) {
	finder, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(finder)
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil), nil
}

// findScopes finds out which of the further kinds are cluster-scoped.
func (a *adoption) findScopes() error {
	a.clusterWide = map[schema.GroupVersionResource]bool{}
	for _, resource := range a.further {
		kind, err := a.client.RESTMapper().KindFor(resource)
		if err != nil {
			return fmt.Errorf("finding the kind of %s: %w", resource.Resource, err)
		}
		mapping, err := a.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("finding the kind of %s: %w", resource.Resource, err)
		}
		a.clusterWide[resource] = mapping.Scope.Name() == meta.RESTScopeNameRoot
	}
	for _, resource := range a.further {
		if unadoptable[resource.GroupResource()] {
			return fmt.Errorf("--resource: %s belong to the clusters themselves; they cannot be adopted", resource.Resource)
		}
	}
	return nil
}

// unadoptable are cluster-scoped kinds of which each cluster has its own.
var unadoptable = map[schema.GroupResource]bool{
	{Resource: "nodes"}: true, {Resource: "namespaces"}: true, {Resource: "persistentvolumes"}: true,
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: true, {Group: "apiregistration.k8s.io", Resource: "apiservices"}: true,
}

// newPlanner reads the clusters, the policies and the interpreters of the federation.
func (a *adoption) newPlanner(ctx context.Context) (*adopt.Planner, error) {
	p := adopt.Options{Interpreter: a.interpreters, Policies: policies.NewIndex()}
	p.Autoscaled = func(key adopt.Key) bool { return a.autoscaled[adopt.Named{GroupKind: key.GroupKind(), Name: key.Name}] }
	var clusters clusterv1alpha1.ClusterList
	var namespaced policyv1alpha1.PropagationPolicyList
	var clusterWide policyv1alpha1.ClusterPropagationPolicyList
	var overrides policyv1alpha1.OverridePolicyList
	var clusterOverrides policyv1alpha1.ClusterOverridePolicyList
	var customizations configv1alpha1.ResourceInterpreterCustomizationList
	var webhooks configv1alpha1.ResourceInterpreterWebhookConfigurationList
	within := client.InNamespace(a.flags.namespace) // it has no effect on cluster-scoped kinds
	for _, list := range []client.ObjectList{&clusters, &namespaced, &clusterWide, &overrides, &clusterOverrides, &customizations, &webhooks} {
		if err := a.client.List(ctx, list, within); err != nil {
			return nil, err
		}
	}
	for i := range clusters.Items {
		p.Clusters = append(p.Clusters, &clusters.Items[i])
	}
	for i := range namespaced.Items {
		p.Policies.Set(policies.Compile(&namespaced.Items[i]))
	}
	for i := range clusterWide.Items {
		p.Policies.Set(policies.CompileCluster(&clusterWide.Items[i]))
	}
	for i := range overrides.Items {
		p.Overrides = append(p.Overrides, &overrides.Items[i])
	}
	for i := range clusterOverrides.Items {
		p.ClusterOverrides = append(p.ClusterOverrides, &clusterOverrides.Items[i])
	}
	var scripts []*configv1alpha1.ResourceInterpreterCustomization
	for i := range customizations.Items {
		scripts = append(scripts, &customizations.Items[i])
	}
	var hooks []*configv1alpha1.ResourceInterpreterWebhookConfiguration
	for i := range webhooks.Items {
		hooks = append(hooks, &webhooks.Items[i])
	}
	// Operations of an invalid interpreter fail when used, as they do in engines.
	_ = a.interpreters.SetCustomizations(scripts)
	_ = a.interpreters.SetWebhooks(hooks)
	return adopt.New(p), nil
}

// connect makes clients for the members, through the gateway.
func (a *adoption) connect(config *rest.Config) error {
	var known []string
	for _, cluster := range a.planner.Clusters {
		known = append(known, cluster.Name)
	}
	wanted := a.flags.clusters
	if name, unknown := unknownCluster(wanted, known); unknown {
		return fmt.Errorf("--clusters: there is no cluster %q in the federation; it has %s", name, strings.Join(known, ", "))
	}
	if len(wanted) == 0 {
		wanted = known
	}
	if len(wanted) == 0 {
		return errors.New("the federation has no clusters; add one with `cellplane join`")
	}
	for _, name := range wanted {
		client, err := dynamic.NewForConfig(memberConfig(config, name))
		if err != nil {
			return fmt.Errorf("connecting to cluster %s: %w", name, err)
		}
		a.members[name] = client
	}
	return nil
}

// memberConfig returns the configuration for a cluster, through the gateway.
func memberConfig(gateway *rest.Config, cluster string) *rest.Config {
	member := rest.CopyConfig(gateway)
	member.Host = strings.TrimSuffix(gateway.Host, "/") + "/apis/" + clusterv1alpha1.GroupVersion.String() + "/clusters/" + cluster + "/proxy"
	return member
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

var (
	autoscalers = gvr("autoscaling", "v2", "horizontalpodautoscalers")
	// workloads are what people look for.
	workloads = []schema.GroupVersionResource{
		gvr("apps", "v1", "deployments"), gvr("apps", "v1", "statefulsets"), gvr("apps", "v1", "daemonsets"), gvr("batch", "v1", "cronjobs"), gvr("batch", "v1", "jobs"),
	}
	// attendants belong to workloads that they select or refer to.
	attendants = []schema.GroupVersionResource{
		gvr("networking.k8s.io", "v1", "ingresses"), gvr("", "v1", "services"), autoscalers, gvr("policy", "v1", "poddisruptionbudgets"),
	}
	// dependencies are adopted only if something refers to them.
	dependencies = []schema.GroupVersionResource{
		gvr("", "v1", "configmaps"), gvr("", "v1", "secrets"), gvr("", "v1", "serviceaccounts"), gvr("", "v1", "persistentvolumeclaims"),
	}
	// sharedKinds are cluster-scoped kinds that objects of a namespace refer to.
	sharedKinds = []schema.GroupVersionResource{
		gvr("scheduling.k8s.io", "v1", "priorityclasses"), gvr("node.k8s.io", "v1", "runtimeclasses"), gvr("storage.k8s.io", "v1", "storageclasses"),
		gvr("networking.k8s.io", "v1", "ingressclasses"), gvr("rbac.authorization.k8s.io", "v1", "clusterroles"),
	}
)

// each plans the groups of the namespace, one after another.
func (a *adoption) each(ctx context.Context, visit func(adopt.Group, *adopt.Item) error) error {
	if err := a.readAutoscalers(ctx); err != nil {
		return err
	}
	related := adopt.NewRelations(a.interpreters)
	a.related = related
	plan := func(group adopt.Group) error { return visit(group, a.plan(ctx, group, related)) }
	for _, resource := range slices.Concat(workloads, a.further) {
		if err := a.groups(ctx, resource, a.flags.selector, func(group adopt.Group) error {
			if followsCronJob(group) || isBuiltIn(group) {
				return nil
			}
			return plan(group)
		}); err != nil {
			return err
		}
	}
	for _, resource := range attendants {
		if err := a.groups(ctx, resource, "", func(group adopt.Group) error {
			if a.flags.selector != "" && !related.Serves(ctx, group.Objects[0].Object) || isAPIServer(group.Key) {
				return nil
			}
			return plan(group)
		}); err != nil {
			return err
		}
	}
	return a.eachDependency(ctx, related, plan)
}

// readAutoscalers finds out which workloads are scaled by autoscalers.
func (a *adoption) readAutoscalers(ctx context.Context) error {
	return a.groups(ctx, autoscalers, "", func(group adopt.Group) error {
		for _, object := range group.Objects {
			if target, ok := adopt.ScaleTarget(object.Object); ok {
				a.autoscaled[target] = true
			}
		}
		return nil
	})
}

// plan plans a group, and notes what it refers to.
func (a *adoption) plan(ctx context.Context, group adopt.Group, related *adopt.Relations) *adopt.Item {
	item, err := a.planner.Plan(ctx, group)
	if err != nil {
		item.Obstacles = append(item.Obstacles, err.Error())
	}
	for _, object := range group.Objects {
		if err := related.Add(ctx, object.Object); err != nil {
			item.Obstacles = append(item.Obstacles, err.Error())
		}
	}
	return item
}

// eachDependency visits what planned groups refer to.
func (a *adoption) eachDependency(ctx context.Context, related *adopt.Relations, visit func(adopt.Group) error) error {
	for _, resource := range dependencies {
		if err := a.groups(ctx, resource, "", func(group adopt.Group) error {
			if !related.Has(group.Key.GroupKind(), group.Key.Name) {
				return nil
			}
			return visit(group)
		}); err != nil {
			return err
		}
	}
	return nil
}

// followsCronJob reports whether a group is the Jobs of a CronJob, which is adopted itself.
func followsCronJob(group adopt.Group) bool {
	return !slices.ContainsFunc(group.Objects, func(object adopt.Object) bool {
		owner := metav1.GetControllerOf(object.Object)
		return owner == nil || owner.Kind != "CronJob"
	})
}

// isBuiltIn reports whether a group is cluster-scoped objects that every cluster makes for itself.
func isBuiltIn(group adopt.Group) bool {
	if group.Key.Namespace != "" {
		return false
	}
	return strings.HasPrefix(group.Key.Name, "system:") || strings.HasPrefix(group.Key.Name, "system-") ||
		group.Objects[0].Object.GetLabels()["kubernetes.io/bootstrapping"] != ""
}

// eachShared plans the cluster-scoped objects that planned groups refer to. They are not adopted with a namespace, as others refer to them, too.
func (a *adoption) eachShared(ctx context.Context, visit func(*adopt.Item) error) error {
	for _, resource := range sharedKinds {
		if slices.Contains(a.further, resource) {
			continue
		}
		for _, name := range a.related.Shared(resource.GroupResource()) {
			group, err := a.shared(ctx, resource, name)
			if err != nil {
				return err
			}
			if len(group.Objects) < 2 || isBuiltIn(group) {
				continue
			}
			item, err := a.planner.Plan(ctx, group)
			if err != nil {
				return err
			}
			if err := visit(item); err != nil {
				return err
			}
		}
	}
	return nil
}

// shared reads a cluster-scoped object in all clusters in which the user may.
func (a *adoption) shared(ctx context.Context, resource schema.GroupVersionResource, name string) (adopt.Group, error) {
	var group adopt.Group
	for _, cluster := range slices.Sorted(maps.Keys(a.members)) {
		obj, err := a.members[cluster].Resource(resource).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return group, fmt.Errorf("reading the %s %s of cluster %s: %w", resource.Resource, name, cluster, err)
		}
		group.Key = adopt.KeyOf(obj)
		group.Objects = append(group.Objects, adopt.Object{Cluster: cluster, Object: obj})
	}
	return group, nil
}

// isAPIServer reports whether a Service is the one of the API server of each cluster.
func isAPIServer(key adopt.Key) bool {
	return key.Kind == "Service" && key.Namespace == metav1.NamespaceDefault && key.Name == "kubernetes"
}

// groups visits the groups of one kind.
func (a *adoption) groups(ctx context.Context, resource schema.GroupVersionResource, selector string, visit func(adopt.Group) error) error {
	sources := []adopt.Source{a.source(ctx, "", a.templates, resource, selector)}
	for name, member := range a.members {
		sources = append(sources, a.source(ctx, name, member, resource, selector))
	}
	return adopt.Groups(sources, visit)
}

// pageSize is how many objects a request returns.
const pageSize = 500

// source lists the objects of a kind page by page.
func (a *adoption) source(ctx context.Context, cluster string, from dynamic.Interface, resource schema.GroupVersionResource, selector string) adopt.Source {
	var page []unstructured.Unstructured
	options := metav1.ListOptions{Limit: pageSize, LabelSelector: selector}
	more := true
	namespace := a.flags.namespace
	if a.clusterWide[resource] {
		namespace = ""
	}
	next := func() (*unstructured.Unstructured, error) {
		for len(page) == 0 && more {
			list, err := from.Resource(resource).Namespace(namespace).List(ctx, options)
			if token := continued(err); token != "" {
				options.Continue = token
				continue
			}
			if apierrors.IsNotFound(err) && options.Continue == "" {
				return nil, nil // the cluster does not have the kind
			}
			if err != nil {
				return nil, unlisted(cluster, resource.Resource, err)
			}
			page, options.Continue = list.Items, list.GetContinue()
			more = options.Continue != ""
		}
		if len(page) == 0 {
			return nil, nil
		}
		obj := page[0].DeepCopy() // the page is not kept for it
		page = page[1:]
		return obj, nil
	}
	return adopt.Source{Cluster: cluster, Next: next}
}

func unlisted(cluster, resource string, err error) error {
	if cluster == "" {
		return fmt.Errorf("listing the %s of the federation: %w", resource, err)
	}
	return fmt.Errorf("listing the %s of cluster %s, which --clusters can leave out: %w", resource, cluster, err)
}

// continued returns the token with which a list can be continued at a newer version, if the old one has expired.
func continued(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().ListMeta.Continue
}
