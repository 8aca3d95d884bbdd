package doctor

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// reachWithin is how long a control plane may take to answer.
const reachWithin = 10 * time.Second

// reach finds the control planes that answer. The other checks are about these. Failed cells need not answer.
func (d *Doctor) reach(ctx context.Context) []Finding {
	d.planes = []plane{d.hub}
	var findings []Finding
	for i := range d.cells {
		name := d.cells[i].Name
		if d.state(name) == cellplanev1alpha1.CellStateFailed {
			continue
		}
		found, err := d.reachCell(ctx, name)
		if err != nil {
			findings = append(findings, find(ControlPlaneUnreachable, Error, "Cell "+name, err.Error()))
			continue
		}
		d.planes = append(d.planes, found)
	}
	return findings
}

func (d *Doctor) reachCell(ctx context.Context, name string) (plane, error) {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	cell, err := d.pool.Get(ctx, name)
	if err != nil {
		return plane{}, err
	}
	found := plane{name: name}
	if found.config, err = cell.Config(); err != nil {
		return plane{}, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(found.config)
	if err != nil {
		return plane{}, err
	}
	if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return plane{}, fmt.Errorf("its API server is not ready: %w", err)
	}
	if found.client, err = cell.Client(); err != nil {
		return plane{}, err
	}
	return found, nil
}
