package cell

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Cell is the cache of a cell. Create it with New, subscribe to its stores, then Start it.
type Cell struct {
	// Name of the cell; empty in an agent, which sees all cells as one.
	Name string
	// Cluster is the cluster of an agent; empty in an engine.
	Cluster string

	Templates *Templates
	Revisions *Revisions
	Works     *Store[Work]
	Manifests *Manifests

	bindings        *Store[workv1alpha2.ResourceBinding]
	clusterBindings *Store[workv1alpha2.ResourceBinding]

	Policies                *Store[policyv1alpha1.PropagationPolicy]
	ClusterPolicies         *Store[policyv1alpha1.ClusterPropagationPolicy]
	OverridePolicies        *Store[policyv1alpha1.OverridePolicy]
	ClusterOverridePolicies *Store[policyv1alpha1.ClusterOverridePolicy]
	RolloutPolicies         *Store[cellplanev1alpha1.RolloutPolicy]
	ClusterRolloutPolicies  *Store[cellplanev1alpha1.ClusterRolloutPolicy]

	Quotas          *Store[policyv1alpha1.FederatedResourceQuota]
	Clusters        *Store[clusterv1alpha1.Cluster]
	ClusterProfiles *Store[cellplanev1alpha1.ClusterProfile]
	Profiles        *Store[cellplanev1alpha1.SchedulingProfile]
	Secrets         *Store[corev1.Secret] // of members
	Namespaces      *Store[metav1.PartialObjectMetadata]
	PriorityClasses *Store[schedulingv1.PriorityClass]
	Customizations  *Store[configv1alpha1.ResourceInterpreterCustomization]
	Webhooks        *Store[configv1alpha1.ResourceInterpreterWebhookConfiguration]
	definitions     *Store[metav1.PartialObjectMetadata]

	objects   dynamic.Interface
	remote    *BindingClient
	discovery discovery.DiscoveryInterface
	typed     map[schema.GroupVersion]rest.Interface
}

// Options configure what is cached.
type Options struct {
	// Name of the cell.
	Name string
	// Cluster is set in an agent: then only what the agent of the cluster needs is cached, and the cell is all cells, as the gateway shows them.
	Cluster string
	// ClusterScoped caches cluster-scoped templates and bindings too, as on the hub.
	ClusterScoped bool
	// Skip reports kinds that are never templates, in addition to those that never are.
	Skip func(schema.GroupVersionKind) bool
}

// scheme has the kinds that are decoded into types.
var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, api.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types for one kind: a bug
		}
	}
	return s
}

// New prepares the cache of a cell. Requests are not rate limited.
func New(config *rest.Config, options Options) (*Cell, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to cell %s: %w", options.Name, err)
	}
	c := &Cell{Name: options.Name, Cluster: options.Cluster, typed: map[schema.GroupVersion]rest.Interface{}, Manifests: newManifests()}
	if c.objects, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("connecting to cell %s: %w", options.Name, err)
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("connecting to cell %s: %w", options.Name, err)
	}
	for _, gv := range []schema.GroupVersion{
		corev1.SchemeGroupVersion, schedulingv1.SchemeGroupVersion, policyv1alpha1.GroupVersion, workv1alpha1.GroupVersion,
		workv1alpha2.GroupVersion, clusterv1alpha1.GroupVersion, configv1alpha1.GroupVersion, apiextensionsv1.SchemeGroupVersion,
		cellplanev1alpha1.GroupVersion,
	} {
		if c.typed[gv], err = typedClient(config, gv, client); err != nil {
			return nil, fmt.Errorf("connecting to cell %s: %w", options.Name, err)
		}
	}
	c.remote = &BindingClient{c.typed[workv1alpha2.GroupVersion]}
	c.Templates = newTemplates(c, options)
	c.Revisions = newRevisions(c)
	c.Works = newWorks(c)
	c.bindings = newBindings()
	if options.ClusterScoped {
		c.clusterBindings = newBindings()
	}
	c.Policies = newStore(keep[policyv1alpha1.PropagationPolicy])
	c.ClusterPolicies = newStore(keep[policyv1alpha1.ClusterPropagationPolicy])
	c.OverridePolicies = newStore(keep[policyv1alpha1.OverridePolicy])
	c.ClusterOverridePolicies = newStore(keep[policyv1alpha1.ClusterOverridePolicy])
	c.RolloutPolicies = newStore(keep[cellplanev1alpha1.RolloutPolicy])
	c.ClusterRolloutPolicies = newStore(keep[cellplanev1alpha1.ClusterRolloutPolicy])
	c.Quotas = newStore(keep[policyv1alpha1.FederatedResourceQuota])
	c.Clusters = newStore(keep[clusterv1alpha1.Cluster])
	c.ClusterProfiles = newStore(keep[cellplanev1alpha1.ClusterProfile])
	c.Profiles = newStore(keep[cellplanev1alpha1.SchedulingProfile])
	c.Secrets = newStore(keep[corev1.Secret])
	c.Namespaces = newStore(keepMetadata)
	c.PriorityClasses = newStore(keep[schedulingv1.PriorityClass])
	c.Customizations = newStore(keep[configv1alpha1.ResourceInterpreterCustomization])
	c.Webhooks = newStore(keep[configv1alpha1.ResourceInterpreterWebhookConfiguration])
	c.definitions = newStore(keepMetadata)
	c.definitions.Subscribe(func(Key, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata) { c.Templates.Rediscover() })
	return c, nil
}

func typedClient(base *rest.Config, gv schema.GroupVersion, client *http.Client) (rest.Interface, error) {
	config := rest.CopyConfig(base)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientForConfigAndClient(config, client)
}

// keep caches an object as it is, without its managed fields.
func keep[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}](obj runtime.Object, _ *T) *T {
	value, ok := obj.(P)
	if !ok {
		return nil
	}
	value.SetManagedFields(nil)
	return value
}

func keepMetadata(obj runtime.Object, _ *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	m, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(), Generation: m.GetGeneration(), Labels: m.GetLabels(), Annotations: m.GetAnnotations(),
		DeletionTimestamp: m.GetDeletionTimestamp(),
	}}
}

// WorksOf returns the Works of a binding.
func (c *Cell) WorksOf(binding Key) []*Work {
	var works []*Work
	for _, key := range c.Works.indexed(worksByBinding, binding.String()) {
		if work := c.Works.Get(key); work != nil {
			works = append(works, work)
		}
	}
	return works
}

// WorksOfService returns the Works that take the endpoints of a Service, or the Service that stands for it, to other clusters.
func (c *Cell) WorksOfService(service Key) []*Work {
	var works []*Work
	for _, key := range c.Works.indexed(worksByService, service.String()) {
		if work := c.Works.Get(key); work != nil {
			works = append(works, work)
		}
	}
	return works
}

// WorksIn returns the keys of the Works of a cluster.
func (c *Cell) WorksIn(cluster string) []Key { return c.Works.indexed(worksByCluster, cluster) }

// part is a resource to cache.
type part struct {
	gv       schema.GroupVersion
	resource string
	inside   string // a namespace; empty means all
	named    string // the only object; empty means all
	list     func() runtime.Object
	sink     sink
	synced   <-chan struct{}
	after    <-chan struct{} // nil means at once
	optional bool            // a cell may not serve it yet: it is empty then
}

// parts returns what an engine needs.
func (c *Cell) parts() []part {
	parts := []part{
		{gv: policyv1alpha1.GroupVersion, resource: "propagationpolicies", list: func() runtime.Object { return &policyv1alpha1.PropagationPolicyList{} }, sink: c.Policies, synced: c.Policies.Synced()},
		{gv: policyv1alpha1.GroupVersion, resource: "clusterpropagationpolicies", list: func() runtime.Object { return &policyv1alpha1.ClusterPropagationPolicyList{} }, sink: c.ClusterPolicies, synced: c.ClusterPolicies.Synced()},
		{gv: policyv1alpha1.GroupVersion, resource: "overridepolicies", list: func() runtime.Object { return &policyv1alpha1.OverridePolicyList{} }, sink: c.OverridePolicies, synced: c.OverridePolicies.Synced()},
		{gv: policyv1alpha1.GroupVersion, resource: "clusteroverridepolicies", list: func() runtime.Object { return &policyv1alpha1.ClusterOverridePolicyList{} }, sink: c.ClusterOverridePolicies, synced: c.ClusterOverridePolicies.Synced()},
		{gv: cellplanev1alpha1.GroupVersion, resource: "rolloutpolicies", list: func() runtime.Object { return &cellplanev1alpha1.RolloutPolicyList{} }, sink: c.RolloutPolicies, synced: c.RolloutPolicies.Synced(), optional: true},
		{gv: cellplanev1alpha1.GroupVersion, resource: "clusterrolloutpolicies", list: func() runtime.Object { return &cellplanev1alpha1.ClusterRolloutPolicyList{} }, sink: c.ClusterRolloutPolicies, synced: c.ClusterRolloutPolicies.Synced(), optional: true},
		{gv: policyv1alpha1.GroupVersion, resource: "federatedresourcequotas", list: func() runtime.Object { return &policyv1alpha1.FederatedResourceQuotaList{} }, sink: c.Quotas, synced: c.Quotas.Synced()},
		{gv: clusterv1alpha1.GroupVersion, resource: "clusters", list: func() runtime.Object { return &clusterv1alpha1.ClusterList{} }, sink: c.Clusters, synced: c.Clusters.Synced()},
		{gv: cellplanev1alpha1.GroupVersion, resource: "clusterprofiles", list: func() runtime.Object { return &cellplanev1alpha1.ClusterProfileList{} }, sink: c.ClusterProfiles, synced: c.ClusterProfiles.Synced()},
		{gv: cellplanev1alpha1.GroupVersion, resource: "schedulingprofiles", list: func() runtime.Object { return &cellplanev1alpha1.SchedulingProfileList{} }, sink: c.Profiles, synced: c.Profiles.Synced()},
		{gv: corev1.SchemeGroupVersion, resource: "secrets", inside: names.ClusterNamespace, list: func() runtime.Object { return &corev1.SecretList{} }, sink: c.Secrets, synced: c.Secrets.Synced()},
		{gv: corev1.SchemeGroupVersion, resource: "namespaces", list: func() runtime.Object { return &corev1.NamespaceList{} }, sink: c.Namespaces, synced: c.Namespaces.Synced()},
		{gv: schedulingv1.SchemeGroupVersion, resource: "priorityclasses", list: func() runtime.Object { return &schedulingv1.PriorityClassList{} }, sink: c.PriorityClasses, synced: c.PriorityClasses.Synced()},
		{gv: configv1alpha1.GroupVersion, resource: "resourceinterpretercustomizations", list: func() runtime.Object { return &configv1alpha1.ResourceInterpreterCustomizationList{} }, sink: c.Customizations, synced: c.Customizations.Synced()},
		{gv: configv1alpha1.GroupVersion, resource: "resourceinterpreterwebhookconfigurations", list: func() runtime.Object { return &configv1alpha1.ResourceInterpreterWebhookConfigurationList{} }, sink: c.Webhooks, synced: c.Webhooks.Synced()},
		{gv: apiextensionsv1.SchemeGroupVersion, resource: "customresourcedefinitions", list: func() runtime.Object { return &apiextensionsv1.CustomResourceDefinitionList{} }, sink: c.definitions, synced: c.definitions.Synced()},
		{gv: workv1alpha1.GroupVersion, resource: "works", list: func() runtime.Object { return &workv1alpha1.WorkList{} }, sink: c.Works, synced: c.Works.Synced(), after: c.Clusters.Synced()}, // the cluster says whether it pulls its Works
		{gv: workv1alpha2.GroupVersion, resource: "resourcebindings", list: func() runtime.Object { return &workv1alpha2.ResourceBindingList{} }, sink: c.bindings, synced: c.bindings.Synced()},
	}
	if c.clusterBindings != nil {
		parts = append(parts, part{gv: workv1alpha2.GroupVersion, resource: "clusterresourcebindings", list: func() runtime.Object { return &workv1alpha2.ClusterResourceBindingList{} }, sink: c.clusterBindings, synced: c.clusterBindings.Synced()})
	}
	return parts
}

// Start watches everything until the context ends. It returns when all caches have synced.
func (c *Cell) Start(ctx context.Context) error {
	parts := c.parts()
	if c.Cluster != "" {
		parts = ofAgent(parts, c.Cluster)
	}
	logger := klog.FromContext(ctx)
	var wait sync.WaitGroup
	for _, p := range parts {
		known := p.sink.knows
		if c.Cluster != "" {
			known = nil // it compares versions, which those of Works in different cells do not allow
		}
		source := typedSource(c.typed[p.gv], &p, known)
		go func() {
			if p.after != nil {
				select {
				case <-p.after:
				case <-ctx.Done():
					return
				}
			}
			fleet.Watch(ctx, source, p.sink, fleet.EachReason(func(err error) {
				logger.Info("cannot watch, retrying", "resource", p.resource, "err", err)
			}))
		}()
		wait.Add(1)
		go func() {
			defer wait.Done()
			select {
			case <-p.synced:
			case <-ctx.Done():
			}
		}()
	}
	wait.Wait()
	if ctx.Err() != nil || c.Cluster != "" {
		return ctx.Err()
	}
	return c.Templates.start(ctx)
}

// sink is a store of any type.
type sink interface {
	fleet.Sink
	knows(namespace, name, resourceVersion string) bool
}

// typedSource lists and watches a resource into types. Objects that are known already are not decoded again.
func typedSource(client rest.Interface, p *part, known fleet.Known) fleet.Source {
	newList, item, decode := p.list, itemOf(p.list()), decodeItem(p.list())
	get := func() *rest.Request {
		request := client.Get().NamespaceIfScoped(p.inside, p.inside != "").Resource(p.resource)
		if p.named != "" {
			request.Param("fieldSelector", "metadata.name="+p.named)
		}
		return request
	}
	return fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			answer := get().VersionedParams(&options, metav1.ParameterCodec).Do(ctx)
			err := answer.Into(list)
			if p.optional && apierrors.IsNotFound(err) {
				return newList(), nil // it is listed again and again until it is served, since it cannot be watched
			}
			if err == nil || answer.Error() != nil {
				return list, err
			}
			body, err := answer.Raw()
			if err != nil {
				return nil, err
			}
			list = newList()
			return list, readList(body, list, item)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return fleet.OpenWatch(ctx, get(), options, decode, known)
		},
	}
}

// decodeItem returns a function that decodes one object of a list's item type.
func decodeItem(list runtime.Object) fleet.Decode {
	item := itemOf(list)
	return func(object []byte) (runtime.Object, error) { return readItem(fleet.WithoutManagedFields(object), item) }
}

// itemOf returns the item type of a list.
func itemOf(list runtime.Object) reflect.Type {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		panic(err) // not a list: a bug
	}
	return reflect.TypeOf(items).Elem().Elem()
}
