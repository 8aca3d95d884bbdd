package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/agents"
	"github.com/cellplane/cellplane/internal/gateway/documents"
	"github.com/cellplane/cellplane/internal/gateway/durability"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/gateway/members"
	"github.com/cellplane/cellplane/internal/gateway/protection"
	"github.com/cellplane/cellplane/internal/gateway/rbac"
	"github.com/cellplane/cellplane/internal/gateway/router"
	"github.com/cellplane/cellplane/internal/gateway/served"
	"github.com/cellplane/cellplane/internal/gateway/tokens"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/gateway/views"
	"github.com/cellplane/cellplane/internal/gateway/writerlease"
	"github.com/cellplane/cellplane/internal/limits"
	"github.com/cellplane/cellplane/internal/skew"
)

// watchTermination is the time in which watches end when the gateway stops.
const watchTermination = 5 * time.Second

// Config is a complete configuration of a gateway.
type Config struct {
	options CompletedOptions
	generic *genericserver.Config

	hubClient   kubernetes.Interface
	definitions clientset.Interface
	informers   informers.SharedInformerFactory
	authorizer  *rbac.Authorizer
	rights      *rbac.Snapshot // nil without a state directory
	members     *members.Directory
	documents   *documents.Documents
	policies    *protection.Policies
	served      *served.APIs
	topology    *topology.Tracker
	kinds       *kinds.Registry
	router      *router.Router
	lease       *writerlease.Keeper // nil if the cells are listed in a file: they never change
	backups     *durability.Backups
	views       *views.Views // nil if the objects of members are not shown
	shares      *topology.Tracker
	streams     *limits.Streams
	budget      *limits.Budget
	identity    *hubIdentity
	skew        *skew.Watch // of the hub
	// stop ends the background work that starts before Run.
	stop context.CancelFunc
	// stopping is closed when no more requests are accepted.
	stopping stopSignal
}

// NewConfig returns the Config of validated options.
func NewConfig(o CompletedOptions) (*Config, error) {
	c := &Config{options: o, generic: genericserver.NewConfig(forward.Codecs), stopping: make(stopSignal)}
	c.streams, c.budget = limits.NewStreams(o.MaxStreamsPerUser), limits.NewBudget(o.MemoryBudget.Value(), limits.DefaultWait)
	limits.Expose(metricsPrefix, c.budget)
	var err error
	if c.hubClient, err = kubernetes.NewForConfig(o.hub); err != nil {
		return nil, fmt.Errorf("creating a client of the hub: %w", err)
	}
	c.informers = informers.NewSharedInformerFactory(c.hubClient, 0)
	hub, err := fleet.NewUpstream("hub", o.endpoint, o.Connections)
	if err != nil {
		return nil, err
	}
	ownHub, err := newHubAsGateway(o.hub)
	if err != nil {
		return nil, err
	}
	c.identity = newHubIdentity(ownHub, hub)
	if c.skew, err = skew.New("the hub", o.hub); err != nil {
		return nil, err
	}
	source := o.source
	if source == nil {
		if source, err = topology.NewHubSource(o.hub); err != nil {
			return nil, err
		}
	}
	c.topology = topology.NewTracker(source, &fleet.Cells{Connections: o.Connections}, o.StateDir)
	c.topology.Hub = true
	if c.definitions, err = clientset.NewForConfig(o.hub); err != nil {
		return nil, fmt.Errorf("creating a client of the hub: %w", err)
	}
	c.kinds = kinds.NewRegistry(kinds.Options{Hub: hub, Cells: c.cells, Expose: c.exposes(), Definition: c.definition, Metrics: c.hasMetrics, Pushed: len(o.views.shares) > 0, Dir: o.StateDir})
	var kept func() *rbac.Index
	if o.StateDir != "" {
		c.rights = rbac.NewSnapshot(o.StateDir)
		kept = c.rights.Kept
	}
	if c.authorizer, err = rbac.NewAuthorizer(c.informers, kept); err != nil {
		return nil, fmt.Errorf("configuring authorization: %w", err)
	}
	c.documents = documents.New(hub, o.StateDir, c.announced)
	if c.members, err = members.NewDirectory(o.hub, o.StateDir); err != nil {
		return nil, err
	}
	client, err := topology.RESTClient(o.hub)
	if err != nil {
		return nil, err
	}
	if c.policies, err = protection.NewPolicies(client, c.informers, o.StateDir); err != nil {
		return nil, fmt.Errorf("configuring protection: %w", err)
	}
	if c.served, err = served.NewAPIs(client, o.StateDir); err != nil {
		return nil, fmt.Errorf("configuring the API of users: %w", err)
	}
	c.backups = &durability.Backups{Topology: c.topology, Namespace: c.durabilityOf(c.informers.Core().V1().Namespaces())}
	c.router = router.New(router.Router{
		Hub:             hub,
		OwnHub:          ownHub,
		Topology:        c.topology,
		Kinds:           c.kinds,
		Members:         members.NewProxy(c.members),
		Documents:       c.documents,
		NamespaceExists: c.namespaceExists,
		Durability:      c.backups,
	})
	if o.CellsFile == "" {
		c.lease = writerlease.New(o.WriterLease, c.topology, c.hubFloor)
		c.router.Lease = c.lease
	}
	return c, c.completeGeneric()
}

// hubFloor returns the lowest epoch that the hub accepts writes by. A hub that has never been raised accepts all.
func (c *Config) hubFloor(ctx context.Context) (int64, error) {
	answer, err := c.askHub(ctx, http.MethodGet, fence.FloorPath, nil, nil)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return fence.FloorIn(answer)
}

// completeGeneric sets the configuration of the generic server.
func (c *Config) completeGeneric() error {
	o, g := c.options, c.generic
	g.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	g.EnableIndex, g.EnableDiscovery, g.SkipOpenAPIInstallation = false, false, true
	g.MaxRequestsInFlight, g.MaxMutatingRequestsInFlight = o.MaxRequestsInFlight, o.MaxMutatingRequestsInFlight
	g.RequestTimeout, g.ShutdownDelayDuration, g.GoawayChance = o.RequestTimeout, o.ShutdownDelay, o.GoawayChance
	g.ShutdownWatchTerminationGracePeriod = watchTermination
	g.LongRunningFunc = isLongRunning
	if err := o.SecureServing.ApplyTo(&g.SecureServing, &g.LoopbackClientConfig); err != nil {
		return fmt.Errorf("configuring serving: %w", err)
	}
	ca, err := o.ClientCA.GetClientCAContentProvider()
	if err != nil {
		return fmt.Errorf("reading --client-ca-file: %w", err)
	}
	if err := g.Authentication.ApplyClientCert(ca, g.SecureServing); err != nil {
		return fmt.Errorf("configuring authentication: %w", err)
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	own, err := tokens.New(ctx, o.Tokens)
	if err != nil {
		return fmt.Errorf("configuring authentication: %w", err)
	}
	if g.Authentication.Authenticator, err = newAuthenticator(ca, own, c.hubClient.AuthenticationV1(), c.members.Cluster, o.TokenCacheTTL); err != nil {
		return fmt.Errorf("configuring authentication: %w", err)
	}
	health, err := path.NewAuthorizer([]string{"/healthz", "/livez", "/livez/*", "/readyz", "/readyz/*"})
	if err != nil {
		return fmt.Errorf("configuring authorization: %w", err)
	}
	g.Authorization.Authorizer = union.New(agents.Guard{}, authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup), health, c.authorizer)
	if err := o.Audit.ApplyTo(g); err != nil {
		return fmt.Errorf("configuring audit: %w", err)
	}
	if err := o.Features.ApplyTo(g, c.hubClient, c.informers); err != nil {
		return fmt.Errorf("configuring flow control: %w", err)
	}
	g.BuildHandlerChainFunc = c.chain
	return nil
}

// askHub sends a request to the hub with the identity of the gateway.
func (c *Config) askHub(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	r := c.hubClient.Discovery().RESTClient().Verb(method).AbsPath(path).SetHeader("Accept", "application/json").SetHeader("Content-Type", "application/json")
	for key, values := range query {
		for _, value := range values {
			r = r.Param(key, value)
		}
	}
	if body != nil {
		r = r.Body(body)
	}
	return r.DoRaw(ctx)
}

func (c *Config) cells() []*fleet.Upstream {
	if view := c.topology.View(); view != nil {
		return view.Upstreams
	}
	return nil
}

// exposes returns which resources discovery shows, nil for all.
func (c *Config) exposes() func(schema.GroupResource) bool {
	if c.options.expose == nil {
		return nil
	}
	return func(resource schema.GroupResource) bool { return c.options.expose[resource] }
}

// announced returns what discovery shows to the user of a request, nil while that is not known.
func (c *Config) announced(ctx context.Context) *kinds.Announced {
	if catalog := c.kinds.Catalog(); catalog != nil {
		return catalog.For(ctx).Announced
	}
	return nil
}

func (c *Config) definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return definition, err
}

// durabilityOf returns a function that returns what a namespace asks for.
func (c *Config) durabilityOf(namespaces coreinformers.NamespaceInformer) func(string) (string, bool) {
	lister, synced := namespaces.Lister(), namespaces.Informer().HasSynced
	return func(name string) (string, bool) {
		namespace, err := lister.Get(name)
		if err != nil {
			return "", synced()
		}
		return namespace.Annotations[names.DurabilityAnnotation], true
	}
}

func (c *Config) namespaceExists(ctx context.Context, name string) (bool, error) {
	namespace, err := c.hubClient.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && namespace.Status.Phase != corev1.NamespaceTerminating, err
}
