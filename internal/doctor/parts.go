package doctor

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/hub/manager"
)

// silentAfter is the age of a Lease from which on its holder is told of. All are renewed every few seconds.
const silentAfter = time.Minute

// checkParts looks whether a hub manager leads, and whether a gateway reports.
func (d *Doctor) checkParts(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	leader := &coordinationv1.Lease{}
	err := d.hub.client.Get(ctx, types.NamespacedName{Namespace: names.SystemNamespace, Name: manager.LeaseName}, leader)
	switch {
	case apierrors.IsNotFound(err):
		findings = append(findings, find(HubManagerSilent, Error, "hub manager", "none has ever led"))
	case err != nil:
		return nil, fmt.Errorf("reading the Lease of the hub manager: %w", err)
	case d.silent(leader):
		findings = append(findings, find(HubManagerSilent, Error, "hub manager", "none leads: the last one renewed its Lease "+d.renewed(leader)))
	}
	var gateways coordinationv1.LeaseList
	if err := d.hub.client.List(ctx, &gateways, client.InNamespace(names.SystemNamespace), client.HasLabels{names.GatewayLeaseLabel}); err != nil {
		return findings, fmt.Errorf("listing the Leases of gateways: %w", err)
	}
	live := 0
	for i := range gateways.Items {
		if !d.silent(&gateways.Items[i]) {
			live++
			continue
		}
		findings = append(findings, find(GatewaySilent, Warning, "Lease "+gateways.Items[i].Name, "its gateway reported last "+d.renewed(&gateways.Items[i])))
	}
	if live == 0 {
		findings = append(findings, find(GatewaySilent, Error, "gateways", "none reports which cells it reaches"))
	}
	return findings, nil
}

func (d *Doctor) silent(lease *coordinationv1.Lease) bool {
	return lease.Spec.RenewTime == nil || d.now().Sub(lease.Spec.RenewTime.Time) > silentAfter
}

func (d *Doctor) renewed(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil {
		return "never"
	}
	return d.now().Sub(lease.Spec.RenewTime.Time).Round(time.Second).String() + " ago"
}
