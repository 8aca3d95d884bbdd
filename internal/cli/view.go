package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fanout"
)

// The operation scopes of Karmada.
const (
	scopeFederation = "karmada"
	scopeMembers    = "members"
	scopeAll        = "all"
)

// view is what a command of kubectl sees as its cluster: the federation, a member, or several of them at once. It implements
// genericclioptions.RESTClientGetter, with what open and its siblings have chosen.
type view struct {
	gatewayFlags
	streams             genericiooptions.IOStreams
	namespace, scope    string
	clusters            []string
	gateway, federation *rest.Config // the latter serves templates
	known               []string     // clusters of the federation
	failed              bool         // a cluster beside others

	loader clientcmd.ClientConfig
	config *rest.Config // of the chosen cluster or clusters
	finder discovery.CachedDiscoveryInterface
	mapper meta.RESTMapper
}

// factory makes the clients of a command of kubectl.
func (v *view) factory() cmdutil.Factory { return cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(v)) }

func (v *view) addFlags(cmd *cobra.Command) {
	v.gatewayFlags.add(cmd)
	cmd.Flags().StringVarP(&v.namespace, "namespace", "n", "", "namespace (default: that of the context)")
}

// command makes a command of the federation of one of kubectl's. Before it runs, open chooses what it sees.
func (v *view) command(cmd *cobra.Command, open func(ctx context.Context, args []string) error) *cobra.Command {
	run := cmd.Run
	cmd.Run, cmd.ValidArgsFunction = nil, nil
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := v.connect(cmd.Context()); err != nil {
			return err
		}
		if err := open(cmd.Context(), args); err != nil {
			return err
		}
		err := v.catch(func() { run(cmd, args) })
		if err == nil && v.failed {
			return exitError{code: 1}
		}
		return err
	}
	v.addFlags(cmd)
	return cmd
}

// fatal is an error with which a command of kubectl would exit.
type fatal struct {
	message string
	code    int
}

// catch runs a command of kubectl and returns its error. An exit code other than 1 is that of a command in a container.
func (v *view) catch(run func()) (err error) {
	cmdutil.BehaviorOnFatal(func(message string, code int) { panic(fatal{message: message, code: code}) })
	defer cmdutil.DefaultBehaviorOnFatal()
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case fatal:
			message := strings.TrimSpace(strings.TrimPrefix(ended.message, "error: "))
			if err = errors.New(message); ended.code != 1 || message == "" {
				fmt.Fprintln(v.streams.ErrOut, message)
				err = exitError{code: ended.code}
			}
		default:
			panic(ended)
		}
	}()
	run()
	return nil
}

// connect reads which clusters there are.
func (v *view) connect(ctx context.Context) (err error) {
	if v.loader, err = v.gatewayFlags.loader(v.namespace); err != nil {
		return err
	}
	if v.gateway, err = v.gatewayFlags.config(); err != nil {
		return err
	}
	v.gateway.QPS = -1 // the servers limit the rate
	host := strings.TrimSuffix(strings.TrimSuffix(v.gateway.Host, "/"), federationPath)
	v.gateway.Host = host
	v.federation = rest.CopyConfig(v.gateway)
	v.federation.Host = host + federationPath
	reader, err := newClient(v.federation)
	if err != nil {
		return err
	}
	var clusters clusterv1alpha1.ClusterList
	if err := reader.List(ctx, &clusters); err != nil {
		return fmt.Errorf("reading the clusters of the federation: %w", err)
	}
	for _, cluster := range clusters.Items {
		v.known = append(v.known, cluster.Name)
	}
	if name, unknown := unknownCluster(v.clusters, v.known); unknown {
		return fmt.Errorf("there is no cluster %q in the federation; it has %s", name, v.listed())
	}
	return nil
}

// federationPath is where the gateway serves templates only.
const federationPath = "/federation"

// openFederation shows the templates.
func (v *view) openFederation() error { return v.open(v.federation, v.federation) }

// openMember shows one cluster.
func (v *view) openMember(name string) error {
	member := memberConfig(v.federation, name)
	return v.open(member, member)
}

// openAll shows the templates and the members of a scope at once.
func (v *view) openAll(scope string, clusters []string) error {
	base, err := url.Parse(v.gateway.Host)
	if err != nil {
		return fmt.Errorf("the address of the federation is not a URL: %w", err)
	}
	var targets []fanout.Target
	found := []*rest.Config{v.federation}
	if scope != scopeMembers {
		targets = append(targets, fanout.Target{Name: "Karmada", Prefix: base.Path + federationPath})
	}
	if scope != scopeFederation {
		for _, name := range clusters {
			targets = append(targets, fanout.Target{Name: name, Prefix: strings.TrimPrefix(memberConfig(v.federation, name).Host, base.Scheme+"://"+base.Host), Member: true})
			found = append(found, memberConfig(v.federation, name))
		}
	}
	if len(targets) == 0 {
		return errors.New("the federation has no clusters; add one with `cellplane join`")
	}
	merged := rest.CopyConfig(v.gateway)
	merged.Host = base.Scheme + "://" + base.Host
	merged.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		return &fanout.Transport{Base: transport, Targets: targets, Failed: func(err error) {
			v.failed = true
			fmt.Fprintf(v.streams.ErrOut, "cellplane: %v\n", err)
		}}
	})
	return v.open(merged, found...)
}

// open sets the configuration of requests, and of the API servers whose kinds are known: the first one that knows a kind is used.
func (v *view) open(config *rest.Config, kinds ...*rest.Config) error {
	var mappers meta.MultiRESTMapper
	for i, server := range kinds {
		client, err := discovery.NewDiscoveryClientForConfig(server)
		if err != nil {
			return fmt.Errorf("connecting to the federation: %w", err)
		}
		finder := memory.NewMemCacheClient(client)
		mappers = append(mappers, restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(finder), finder, nil))
		if i == 0 {
			v.finder = finder
		}
	}
	v.config, v.mapper = config, firstMapper{mappers}
	return nil
}

// ToRESTConfig implements genericclioptions.RESTClientGetter.
func (v *view) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(v.config), nil }

// ToDiscoveryClient implements genericclioptions.RESTClientGetter.
func (v *view) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) { return v.finder, nil }

// ToRESTMapper implements genericclioptions.RESTClientGetter.
func (v *view) ToRESTMapper() (meta.RESTMapper, error) { return v.mapper, nil }

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter.
func (v *view) ToRawKubeConfigLoader() clientcmd.ClientConfig { return v.loader }

// firstMapper asks API servers one after another until one knows a kind.
type firstMapper struct{ meta.MultiRESTMapper }

// KindFor implements meta.RESTMapper.
func (m firstMapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return first(m, func(mapper meta.RESTMapper) (schema.GroupVersionKind, error) { return mapper.KindFor(resource) })
}

// ResourceFor implements meta.RESTMapper.
func (m firstMapper) ResourceFor(resource schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return first(m, func(mapper meta.RESTMapper) (schema.GroupVersionResource, error) { return mapper.ResourceFor(resource) })
}

// RESTMapping implements meta.RESTMapper.
func (m firstMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return first(m, func(mapper meta.RESTMapper) (*meta.RESTMapping, error) { return mapper.RESTMapping(kind, versions...) })
}

// first returns the first result without an error, or the first error.
func first[T any](m firstMapper, ask func(meta.RESTMapper) (T, error)) (result T, problem error) {
	for _, mapper := range m.MultiRESTMapper {
		found, err := ask(mapper)
		if err == nil {
			return found, nil
		}
		if problem == nil {
			problem = err
		}
	}
	return result, problem
}

// chosen returns the clusters of -C, or all.
func (v *view) chosen() []string {
	if len(v.clusters) > 0 {
		return v.clusters
	}
	return v.known
}

// clusterOf returns the cluster of -C, or the only one that has an object.
func (v *view) clusterOf(object ...string) (string, error) {
	switch {
	case len(v.clusters) == 1:
		return v.clusters[0], nil
	case len(object) == 0:
		return "", fmt.Errorf("choose a cluster with -C; the federation has %s", v.listed())
	}
	if err := v.openAll(scopeMembers, v.chosen()); err != nil {
		return "", err
	}
	namespace, _, err := v.loader.Namespace()
	if err != nil {
		return "", err
	}
	infos, err := v.factory().NewBuilder().Unstructured().NamespaceParam(namespace).DefaultNamespace().
		ResourceTypeOrNameArgs(false, object...).Flatten().Do().Infos()
	v.failed = false // it was said, and the command may succeed in the cluster that was found
	if err != nil {
		return "", fmt.Errorf("looking for %s in %s: %w", strings.Join(object, " "), strings.Join(v.chosen(), ", "), err)
	}
	var clusters []string
	for _, info := range infos {
		objects := []runtime.Object{info.Object}
		if meta.IsListType(info.Object) { // several clusters have it
			if objects, err = meta.ExtractList(info.Object); err != nil {
				return "", err
			}
		}
		for _, object := range objects {
			accessor, err := meta.Accessor(object)
			if err != nil {
				return "", err
			}
			clusters = append(clusters, accessor.GetAnnotations()[names.ClusterAnnotation])
		}
	}
	if len(clusters) != 1 {
		return "", fmt.Errorf("%s is in the clusters %s; choose one with -C", strings.Join(object, " "), strings.Join(clusters, ", "))
	}
	return clusters[0], nil
}

func (v *view) listed() string {
	if len(v.known) == 0 {
		return "none"
	}
	return strings.Join(v.known, ", ")
}
