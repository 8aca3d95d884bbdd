package clustergateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/index"
	"github.com/cellplane/cellplane/internal/clustergateway/index/opensearch"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
	"github.com/cellplane/cellplane/internal/clustergateway/pushed"
	"github.com/cellplane/cellplane/internal/clustergateway/registry"
	"github.com/cellplane/cellplane/internal/clustergateway/serve"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/clustergateway/wanted"
	"github.com/cellplane/cellplane/internal/limits"
	"github.com/cellplane/cellplane/internal/skew"
	"github.com/cellplane/cellplane/internal/tunnel"
)

// shutdownTime is how long a shutdown waits for requests.
const shutdownTime = 10 * time.Second

// Server is a cluster-gateway. Create one with New.
type Server struct {
	options  CompletedOptions
	serving  *genericserver.SecureServingInfo
	stores   map[string]*clustercache.Store // by resource.group
	searched *searchStores
	members  *ingest.Members
	registry *registry.Registries
	indexes  *index.Indexers
	pushed   *pushed.Metrics
	wanted   *wanted.Autoscalers // nil without templates
	api      *serve.Server
	trust    *trust
	skew     *skew.Watch // of the hub
	tunnels  tunnel.Tunnels
	stopping chan struct{}
}

// New returns a Server with validated options. It does nothing before Run.
func New(o CompletedOptions) (*Server, error) {
	s := &Server{options: o, stores: map[string]*clustercache.Store{}, stopping: make(chan struct{})}
	if err := o.SecureServing.ApplyTo(&s.serving); err != nil {
		return nil, fmt.Errorf("preparing to serve: %w", err)
	}
	ca, err := o.ClientCA.GetClientCAContentProvider()
	if err != nil {
		return nil, fmt.Errorf("reading --client-ca-file: %w", err)
	}
	s.serving.ClientCA = ca
	s.trust = newTrust(ca, o.ClientNames)
	if s.skew, err = skew.New("the hub", o.hub); err != nil {
		return nil, err
	}
	s.api = serve.New()
	s.api.Budget = limits.NewBudget(o.MemoryBudget.Value(), limits.DefaultWait)
	s.api.Streams = limits.NewStreams(o.MaxStreamsPerUser)
	if err := s.openStores(); err != nil {
		return nil, err
	}
	if err := s.openMetrics(); err != nil {
		return nil, err
	}
	if s.registry, err = registry.New(o.hub, o.clusters); err != nil {
		return nil, err
	}
	s.searched = &searchStores{options: o, api: s.api, open: map[schema.GroupVersionKind]*searchStore{}}
	s.members, err = ingest.New(ingest.Options{
		Hub: o.hub, Templates: o.templates, Clusters: o.clusters, Kinds: s.followed(), Times: o.times(),
		Choices: s.registry.Choices, Dial: s.tunnels.Dial, Open: s.searched.feed, Release: s.searched.release, Progressed: s.registry.Progressed,
	})
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(o.hub)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the hub: %w", err)
	}
	s.indexes = index.New(index.Options{
		Open: opensearch.Open, Use: s.searched.use, Progressed: s.registry.Progressed, Times: index.DefaultTimes(),
		Secret: func(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
			return client.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		},
	})
	s.registry.Clusters, s.registry.Progress, s.registry.Selected = s.members.Clusters, s.members.Progress, s.selected
	s.registry.Plan, s.registry.Indexes = s.indexes.Plan, s.indexes.Progress
	s.api.SearchReady = s.searched.ready.Load
	s.api.Ready, s.api.Shown, s.api.Stopping = s.members.Ready, s.members.Shown, s.stopping
	s.api.Metrics = serve.NewMetrics(s.members)
	return s, nil
}

func (s *Server) openStores() error {
	incarnation := clustercache.NewIncarnation(time.Now(), s.options.Replica)
	for _, view := range s.options.views {
		kind := kinds[name(view)]
		store, err := clustercache.New(clustercache.Options{
			Kind:              kind,
			Incarnation:       incarnation,
			KeepManagedFields: s.options.KeepManagedFields,
			KeepLastApplied:   s.options.KeepLastApplied,
			History:           s.options.History,
		})
		if err != nil {
			return fmt.Errorf("opening the store of %s: %w", view.Resource.Resource, err)
		}
		s.stores[name(view)] = store
		s.api.Add(view, kind, store)
	}
	return nil
}

// openMetrics prepares to take the metrics that agents push.
func (s *Server) openMetrics() error {
	store, err := clustercache.New(clustercache.Options{
		Kind: pushed.Kind(), Incarnation: clustercache.NewIncarnation(time.Now(), s.options.Replica), History: s.options.History,
	})
	if err != nil {
		return fmt.Errorf("opening the store of %s: %w", views.Metrics.Resource, err)
	}
	view := views.View{Resource: views.Metrics}
	s.stores[name(view)] = store
	s.api.AddTyped(view, pushed.Kind(), store, pushed.Decode)
	s.pushed = &pushed.Metrics{Store: store, Keep: s.options.MetricsStaleAfter, Shows: s.api.Shows, Wanted: func() *metricsv1alpha1.WantedMetrics { return nil }}
	if s.options.templates == nil {
		return nil
	}
	if s.wanted, err = wanted.New(rest.AddUserAgent(rest.CopyConfig(s.options.templates), "cluster-gateway")); err != nil {
		return err
	}
	s.pushed.Wanted = s.wanted.Metrics
	return nil
}

// kinds describes how the objects of each view are cached.
var kinds = map[string]clustercache.Kind{
	"pods":             clustercache.Pods(),
	"events":           clustercache.Events(),
	"nodes":            clustercache.Nodes(),
	"replicasets.apps": clustercache.ReplicaSets(),
}

func name(view views.View) string { return view.Resource.GroupResource().String() }

// followed returns the kinds that are watched in members.
func (s *Server) followed() []ingest.Kind {
	all := make([]ingest.Kind, 0, len(s.options.views))
	for _, view := range s.options.views {
		store := s.stores[name(view)]
		all = append(all, ingest.Kind{
			Path:      views.Path(view.Resource),
			Templates: view.Templates,
			Feed:      func(cluster string) ingest.Feed { return store.Feed(cluster) },
		})
	}
	return all
}

// Run serves until the context ends and running requests have finished.
func (s *Server) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("cluster-gateway"))
	stopped, _, err := s.serving.Serve(s.handler(), shutdownTime, ctx.Done())
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.members.Run(groupCtx) })
	group.Go(func() error {
		s.registry.Run(groupCtx)
		return nil
	})
	group.Go(func() error {
		s.indexes.Run(groupCtx)
		return nil
	})
	group.Go(func() error {
		s.pushed.Run(groupCtx)
		return nil
	})
	if s.wanted != nil {
		group.Go(func() error {
			s.wanted.Run(groupCtx)
			return nil
		})
	}
	group.Go(func() error { return s.serveMetrics(groupCtx) })
	group.Go(func() error {
		s.skew.Run(groupCtx)
		return nil
	})
	group.Go(func() error {
		<-groupCtx.Done()
		close(s.stopping)
		s.tunnels.Close() // agents open new ones when this replica is back
		return nil
	})
	err = group.Wait()
	<-stopped
	for _, store := range s.stores {
		store.Close()
	}
	s.searched.close()
	return err
}

// selected applies what the ResourceRegistries select, and the progress of it.
func (s *Server) selected() {
	s.members.Choose()
	if !s.members.Ready() {
		s.registry.Progressed() // look again soon
		return
	}
	s.searched.note(s.members.Progress())
}

// handler serves the API to gateways, and health checks to anybody.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !s.members.Ready() {
			http.Error(w, "still reading the members", http.StatusServiceUnavailable)
			return
		}
		if err := s.skew.Problem(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		alive(w, r)
	})
	mux.Handle("POST "+views.ReportsPath+"{cluster}", s.trust.only(s.pushed))
	mux.Handle("POST "+tunnel.Path+"{cluster}", s.trust.only(http.HandlerFunc(s.takeTunnel)))
	mux.Handle("POST "+tunnel.ConnectionsPath+"{cluster}", s.trust.only(http.HandlerFunc(s.connectThrough)))
	mux.Handle("/", s.trust.only(s.api))
	return mux
}

// metrics returns all metrics of this part and its process.
func (s *Server) metrics() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(s.collectors()...)
	return registry
}

// serveMetrics serves metrics until the context ends, at the addresses that there are for them.
func (s *Server) serveMetrics(ctx context.Context) error {
	registry := s.metrics()
	stop, err := s.options.Scrape.Serve(ctx, registry)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stop)
	if s.options.MetricsAddress == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.MetricsAddress)
	if err != nil {
		return fmt.Errorf("listening at %s: %w; choose another address with --metrics-address", s.options.MetricsAddress, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: shutdownTime}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return nil
}
