package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/quorum"
)

// Report is what a gateway says, in a Lease on the hub.
type Report struct {
	Gateway string
	// Reached and Unreached are the cells that it reaches, and does not.
	Reached, Unreached []string
	// WriterLease is how long its writer lease lasts.
	WriterLease time.Duration

	version string
}

// ReadReports reads the reports of all gateways.
func ReadReports(ctx context.Context, hub client.Reader) ([]Report, error) {
	var leases coordinationv1.LeaseList
	if err := hub.List(ctx, &leases, client.InNamespace(names.SystemNamespace), client.HasLabels{names.GatewayLeaseLabel}); err != nil {
		return nil, fmt.Errorf("listing the reports of gateways: %w", err)
	}
	reports := make([]Report, len(leases.Items))
	for i := range leases.Items {
		reports[i] = reportIn(&leases.Items[i])
	}
	return reports, nil
}

func reportIn(lease *coordinationv1.Lease) Report {
	report := Report{Gateway: lease.Name, Reached: splitNames(lease.Annotations[names.ReachedCellsAnnotation]), version: lease.ResourceVersion}
	for _, entry := range splitNames(lease.Annotations[names.UnreachedCellsAnnotation]) {
		cell, _, _ := strings.Cut(entry, "=")
		report.Unreached = append(report.Unreached, cell)
	}
	var err error
	if report.WriterLease, err = time.ParseDuration(lease.Annotations[names.WriterLeaseAnnotation]); err != nil || report.WriterLease > quorum.MaxLength {
		report.WriterLease = quorum.MaxLength // it cannot be longer
	}
	return report
}

// longestLease returns how long the writer lease of any gateway lasts at most. A gateway uses more than the default only after it has
// reported it.
func longestLease(reports []Report) time.Duration {
	longest := quorum.DefaultLength
	for _, report := range reports {
		longest = max(longest, report.WriterLease)
	}
	return longest
}

const (
	// liveFor is how long a gateway counts as live after its report has changed. It reports every five seconds.
	liveFor = 20 * time.Second
	// keptFor is how long the report of a gateway that has gone is kept.
	keptFor = time.Hour
)

// Reports knows which gateways are live. It compares no clocks: a gateway is live if its report has changed recently. The zero value has
// seen nothing.
type Reports struct {
	seen map[string]seenReport
}

type seenReport struct {
	version string
	at      time.Time
}

// Live returns the reports of live gateways, and the names of those that have been gone for so long that their reports can be removed.
func (r *Reports) Live(now time.Time, reports []Report) (live []Report, gone []string) {
	seen := map[string]seenReport{}
	for _, report := range reports {
		known, found := r.seen[report.Gateway]
		if !found || known.version != report.version {
			known = seenReport{report.version, now}
		}
		seen[report.Gateway] = known
		switch age := now.Sub(known.at); {
		case age < liveFor:
			live = append(live, report)
		case age >= keptFor:
			gone = append(gone, report.Gateway)
		}
	}
	r.seen = seen
	return live, gone
}

// reaching returns the gateways that reach a cell or say nothing about it, and whether a majority of all does not reach it. Without
// gateways nobody contradicts.
func reaching(cell string, live []Report) (others []string, dead bool) {
	for _, report := range live {
		if !slices.Contains(report.Unreached, cell) {
			others = append(others, report.Gateway)
		}
	}
	return others, len(live) == 0 || 2*len(others) < len(live)
}
