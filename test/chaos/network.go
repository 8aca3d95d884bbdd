package chaos

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv/cut"
)

// links is the network of a federation. Gateways and hub managers reach the hub and the cells through it, and API servers their stores.
type links struct {
	*cut.Network
	addresses  map[string]string // of the proxies, by server
	federation atomic.Pointer[local.Federation]
}

func apiServer(controlPlane string) string { return controlPlane + "/" + kubebin.KubeAPIServer }
func store(controlPlane string) string     { return controlPlane + "/" + kubebin.Etcd }

// newLinks starts the proxies.
func newLinks(controlPlanes ...string) (*links, error) {
	l := &links{addresses: map[string]string{}}
	l.Network = cut.New(cut.Processes(l.pids))
	for _, name := range controlPlanes {
		for _, server := range []string{apiServer(name), store(name)} {
			address, err := l.Listen(server)
			if err != nil {
				return nil, err
			}
			l.addresses[server] = address
		}
	}
	return l, nil
}

func (l *links) pids() map[int]string {
	pids := map[int]string{}
	for _, p := range l.federation.Load().Processes() {
		if pid := p.PID(); pid != 0 {
			pids[pid] = p.Name()
		}
	}
	return pids
}

// lead sets the servers of a control plane.
func (l *links) lead(c *controlplane.ControlPlane) {
	for server, address := range map[string]string{apiServer(c.Name()): c.URL(), store(c.Name()): c.EtcdURL()} {
		l.Lead(server, strings.TrimPrefix(address, "https://"))
	}
}

// settings has the stock gateway and API servers use the network. The file is a kubeconfig.
func (l *links) settings(gateway string, controlPlanes ...string) *local.Settings {
	s := &local.Settings{Parts: map[string]local.Part{local.Gateway: {Flags: map[string]local.Values{"hub-kubeconfig": {local.Value(gateway)}}}}}
	for _, name := range controlPlanes {
		s.Parts[apiServer(name)] = local.Part{Flags: map[string]local.Values{"etcd-servers": {local.Value("https://" + l.addresses[store(name)])}}}
	}
	return s
}

// through writes a copy of a kubeconfig of the hub that leads through the network.
func (l *links) through(kubeconfig, file string) error {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + l.addresses[apiServer(local.HubName)]
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, file)
}

// register has gateways and hub managers reach a cell through the network.
func (l *links) register(ctx context.Context, hub client.Client, name string) error {
	cell := &cellplanev1alpha1.Cell{}
	if err := hub.Get(ctx, types.NamespacedName{Name: name}, cell); err != nil {
		return err
	}
	before := cell.DeepCopy()
	cell.Spec.Endpoint.Server = (&url.URL{Scheme: "https", Host: l.addresses[apiServer(name)]}).String()
	cell.Spec.Etcd.Endpoints = []string{"https://" + l.addresses[store(name)]}
	return hub.Patch(ctx, cell, client.MergeFrom(before))
}

// way is a kind of link: which processes reach which servers.
type way struct{ from, to *regexp.Regexp }

var (
	gateways    = regexp.MustCompile(`^(gateway(-2)?|steady-gateway)$`)
	hubManagers = regexp.MustCompile(`^hub-manager-[12]$`)
	cellServers = regexp.MustCompile(`^cell-[a-z]/kube-apiserver$`)
	cellStores  = regexp.MustCompile(`^cell-[a-z]/etcd$`)
	hubServer   = regexp.MustCompile(`^hub/kube-apiserver$`)
	hubStore    = regexp.MustCompile(`^hub/etcd$`)
	anything    = regexp.MustCompile(``)
)

// ways are all kinds of links.
var ways = map[string]way{
	"gateway from hub":            {gateways, hubServer},
	"gateway from cell":           {gateways, cellServers},
	"hub manager from hub":        {hubManagers, hubServer},
	"hub manager from cell":       {hubManagers, cellServers},
	"hub manager from cell store": {hubManagers, cellStores},
	"cell from its store":         {cellServers, cellStores},
	"hub from its store":          {hubServer, hubStore},
}

// all returns the links of all processes.
func (l *links) all() []cut.Link {
	var all []cut.Link
	for _, w := range ways {
		for _, from := range slices.Sorted(maps.Values(l.pids())) {
			for to := range l.addresses {
				own := !strings.HasSuffix(from, apiServer("")) || strings.TrimSuffix(from, apiServer("")) == strings.TrimSuffix(to, store(""))
				if w.from.MatchString(from) && w.to.MatchString(to) && own {
					all = append(all, cut.Link{From: from, To: to})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b cut.Link) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// between returns the links from some processes to some servers.
func (l *links) between(from, to *regexp.Regexp) []cut.Link {
	return slices.DeleteFunc(l.all(), func(link cut.Link) bool { return !from.MatchString(link.From) || !to.MatchString(link.To) })
}

// around returns the links between a cell and everything else.
func (l *links) around(cell string) []cut.Link {
	return slices.DeleteFunc(l.all(), func(link cut.Link) bool {
		return !strings.HasPrefix(link.To, cell+"/") || strings.HasPrefix(link.From, cell+"/")
	})
}

// split returns the links between a gateway with a cell, and the rest.
func (l *links) split(gateway, cell string) []cut.Link {
	return slices.DeleteFunc(l.all(), func(link cut.Link) bool {
		here := func(name string) bool { return name == gateway || strings.HasPrefix(name, cell+"/") }
		return here(link.From) == here(link.To)
	})
}

// set sets a fault of links.
func (l *links) set(all []cut.Link, fault cut.Fault) {
	for _, link := range all {
		l.Set(link, fault)
	}
}

// exactly matches one name.
func exactly(name string) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf("^%s$", regexp.QuoteMeta(name)))
}
