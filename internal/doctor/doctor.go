package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellconn"
)

// checkTimeout bounds each check, so that what hangs does not hide the others.
const checkTimeout = time.Minute

// Doctor examines a federation. Create one with Open.
type Doctor struct {
	hub  plane
	pool *cellconn.Pool
	now  func() time.Time

	topology *cellplanev1alpha1.CellTopology
	cells    []cellplanev1alpha1.Cell
	clusters []clusterv1alpha1.Cluster
	planes   []plane // that answer
}

// plane is a control plane.
type plane struct {
	name   string
	config *rest.Config
	client client.Client
}

// Open prepares to examine the federation of a hub, as a user who may read everything there.
func Open(hub *rest.Config) (*Doctor, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	connected, err := client.New(hub, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the hub: %w", err)
	}
	return &Doctor{
		hub:  plane{name: "hub", config: hub, client: connected},
		pool: &cellconn.Pool{Hub: connected, Secrets: connected, Scheme: scheme},
		now:  time.Now,
	}, nil
}

// Close ends the connections to cells.
func (d *Doctor) Close() { d.pool.Close() }

// check is one look at the federation.
type check struct {
	name string
	run  func(*Doctor, context.Context) ([]Finding, error)
}

// checks are all checks, in their order.
var checks = []check{
	{"certificates", (*Doctor).checkCertificates},
	{"versions", (*Doctor).checkVersions},
	{"clocks", (*Doctor).checkClocks},
	{"parts", (*Doctor).checkParts},
	{"cells", (*Doctor).checkCells},
	{"stores", (*Doctor).checkStores},
	{"quotas", (*Doctor).checkQuotas},
	{"clusters", (*Doctor).checkClusters},
	{"orphans", (*Doctor).checkOrphans},
	{"identities", (*Doctor).checkIdentities},
	{"flow-control", (*Doctor).checkFlowControl},
}

// Examine makes all checks. It fails only if the hub cannot be read.
func (d *Doctor) Examine(ctx context.Context) (*Report, error) {
	if err := d.read(ctx); err != nil {
		return nil, err
	}
	report := &Report{Checks: []string{"control-planes"}, Findings: d.reach(ctx)}
	results := make([][]Finding, len(checks))
	var group sync.WaitGroup
	for i, c := range checks {
		report.Checks = append(report.Checks, c.name)
		group.Go(func() { results[i] = d.make(ctx, c) })
	}
	group.Wait()
	for _, found := range results {
		report.Findings = append(report.Findings, found...)
	}
	report.sort()
	return report, nil
}

func (d *Doctor) make(ctx context.Context, c check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	findings, err := c.run(d, ctx)
	if err != nil {
		findings = append(findings, find(CheckFailed, Error, c.name, err.Error()))
	}
	return findings
}

// read reads what most checks need.
func (d *Doctor) read(ctx context.Context) error {
	d.topology = &cellplanev1alpha1.CellTopology{}
	if err := d.hub.client.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, d.topology); err != nil {
		if apierrors.IsNotFound(err) {
			return errors.New("the hub has no CellTopology; is this the kubeconfig of a hub?")
		}
		return fmt.Errorf("reading the topology: %w", err)
	}
	var cells cellplanev1alpha1.CellList
	if err := d.hub.client.List(ctx, &cells); err != nil {
		return fmt.Errorf("listing cells: %w", err)
	}
	var clusters clusterv1alpha1.ClusterList
	if err := d.hub.client.List(ctx, &clusters); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	d.cells, d.clusters = cells.Items, clusters.Items
	return nil
}

// state returns the state of a cell in the topology, empty if it is not in it.
func (d *Doctor) state(cell string) cellplanev1alpha1.CellState {
	for _, c := range d.topology.Spec.Cells {
		if c.Name == cell {
			return c.State
		}
	}
	return ""
}
