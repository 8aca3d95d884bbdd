package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/schedule"
)

// decisionReport is a scheduling decision and its explanation.
type decisionReport struct {
	Workload string                       `json:"workload"`
	Replicas int32                        `json:"replicas"`
	Requests corev1.ResourceList          `json:"requests,omitempty"`
	Division string                       `json:"division"`
	Profile  string                       `json:"profile,omitempty"`
	Clusters []workv1alpha2.TargetCluster `json:"clusters,omitempty"`
	// Running is the current placement.
	Running  []workv1alpha2.TargetCluster `json:"running,omitempty"`
	Failure  string                       `json:"failure,omitempty"`
	Notes    []string                     `json:"notes,omitempty"`
	Costs    []cost                       `json:"costs,omitempty"`
	Nodes    map[string]nodeReport        `json:"nodes,omitempty"`
	Attempts []schedule.Attempt           `json:"attempts,omitempty"`
}

// cost is the price of all replicas.
type cost struct {
	PerHour  float64 `json:"perHour"`
	Currency string  `json:"currency,omitempty"`
}

// nodeReport is the capacity of a cluster, as known to the third tier.
type nodeReport struct {
	Nodes     int32 `json:"nodes"`
	Potential int32 `json:"potential,omitempty"`
	Promised  int64 `json:"promised,omitempty"`
}

func (f *federation) newReport(q *question) *decisionReport {
	r := &decisionReport{Workload: q.title, Replicas: q.spec.Replicas, Division: divisionOf(q.spec.Placement), Profile: q.profile, Nodes: map[string]nodeReport{}}
	if q.spec.ReplicaRequirements != nil {
		r.Requests = q.spec.ReplicaRequirements.ResourceRequest
	}
	if q.running {
		r.Running = q.spec.Clusters
	}
	for name, account := range f.accounts {
		if account.Known() {
			nodes, potential := account.Nodes()
			r.Nodes[name] = nodeReport{Nodes: nodes, Potential: potential, Promised: account.Reserved()}
		}
	}
	return r
}

func divisionOf(placement *policyv1alpha1.Placement) string {
	switch {
	case placement == nil || !schedule.Divided(placement):
		return "every cluster runs all replicas"
	case placement.ReplicaScheduling.ReplicaDivisionPreference == policyv1alpha1.ReplicaDivisionPreferenceAggregated:
		return "divided among as few clusters as possible"
	case placement.ReplicaScheduling.WeightPreference != nil && placement.ReplicaScheduling.WeightPreference.DynamicWeight != "":
		return "divided by free capacity"
	default:
		return "divided by fixed weights"
	}
}

// addCost sums up the prices of the chosen clusters by currency.
func (r *decisionReport) addCost() {
	if r.Failure != "" || len(r.Attempts) == 0 {
		return
	}
	sums := map[string]float64{}
	for _, verdict := range r.Attempts[len(r.Attempts)-1].Clusters {
		if verdict.Price > 0 && verdict.Replicas > 0 {
			sums[verdict.PriceIn] += verdict.Price * float64(verdict.Replicas)
		}
	}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		r.Costs = append(r.Costs, cost{PerHour: sums[currency], Currency: currency})
	}
}

func (r *decisionReport) print(out io.Writer, format string) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	p := &printer{out: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	r.printHead(p)
	for i := range r.Attempts {
		r.printAttempt(p, &r.Attempts[i], i == len(r.Attempts)-1)
	}
	r.printEnd(p)
	if err := p.out.Flush(); err != nil {
		return err
	}
	return p.err
}

// printer keeps the first error.
type printer struct {
	out *tabwriter.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); p.err == nil {
		p.err = err
	}
}

// table ends the current table.
func (p *printer) table() { p.err = cmp.Or(p.err, p.out.Flush()) }

func (r *decisionReport) printHead(p *printer) {
	p.line("%s: %d replicas%s, %s", r.Workload, r.Replicas, describeRequests(r.Requests), r.Division)
	if r.Profile != "" {
		p.line("Profile: %s", r.Profile)
	}
	if len(r.Running) > 0 {
		p.line("Runs in: %s", describeTargets(r.Running))
	}
	p.table()
}

func describeRequests(requests corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[name]
		parts = append(parts, fmt.Sprintf("%s %s", quantity.String(), name))
	}
	if len(parts) == 0 {
		return ""
	}
	return " of " + strings.Join(parts, " and ") + " each"
}

func describeTargets(targets []workv1alpha2.TargetCluster) string {
	var parts []string
	for i := range targets {
		parts = append(parts, fmt.Sprintf("%s:%d", targets[i].Name, targets[i].Replicas))
	}
	return strings.Join(parts, "  ")
}

func (r *decisionReport) printAttempt(p *printer, attempt *schedule.Attempt, last bool) {
	if attempt.Affinity != "" {
		p.line("")
		p.line("Group %s", attempt.Affinity)
	}
	var eligible, dropped []schedule.Verdict
	for _, verdict := range attempt.Clusters {
		if verdict.Reason != "" && verdict.Filter != "Selection" {
			dropped = append(dropped, verdict)
		} else {
			eligible = append(eligible, verdict)
		}
	}
	slices.SortStableFunc(eligible, func(a, b schedule.Verdict) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), -cmp.Compare(a.Score, b.Score), strings.Compare(a.Cluster, b.Cluster))
	})
	r.printSites(p, eligible)
	r.printClusters(p, eligible)
	r.printNodes(p, eligible)
	if len(dropped) > 0 {
		p.line("\nNot eligible")
		for _, verdict := range dropped {
			p.line("  %s\t%s\t%s", verdict.Cluster, strings.Replace(verdict.Reason, "cluster(s)", "it", 1), verdict.Filter)
		}
		p.table()
	}
	if attempt.Failure != "" && !last {
		p.line("\nNot chosen: %s", attempt.Failure)
	}
}

// printSites prints the first tier, if the profile groups clusters into sites.
func (r *decisionReport) printSites(p *printer, eligible []schedule.Verdict) {
	type site struct {
		name                           string
		step                           int
		available, growth, gets, count int64
		price                          float64
		priceIn                        string
	}
	var sites []*site
	for _, verdict := range eligible {
		if verdict.Site == "" {
			continue
		}
		at := slices.IndexFunc(sites, func(s *site) bool { return s.name == verdict.Site && s.step == verdict.Step })
		if at < 0 {
			sites = append(sites, &site{name: verdict.Site, step: verdict.Step, price: verdict.Price, priceIn: verdict.PriceIn})
			at = len(sites) - 1
		}
		s := sites[at]
		s.available += max(0, verdict.Available)
		s.growth += verdict.Growth
		s.gets += int64(verdict.Replicas)
		s.count++
		s.price = min(s.price, verdict.Price)
	}
	if len(sites) == 0 {
		return
	}
	p.line("\nTier 1: sites, in the order they are filled")
	p.line("  ORDER\tSITE\tCLUSTERS\tCAPACITY\tPRICE PER REPLICA\tGETS")
	for _, s := range sites {
		p.line("  %d\t%s\t%d\t%s\t%s\t%d", s.step+1, s.name, s.count, describeCapacity(s.available, s.growth), describePrice(s.price, s.priceIn), s.gets)
	}
	p.table()
}

func (r *decisionReport) printClusters(p *printer, eligible []schedule.Verdict) {
	if len(eligible) == 0 {
		return
	}
	p.line("\nTier 2: eligible clusters")
	p.line("  CLUSTER\tSCORE\tRUNS\tGETS\tWHY")
	for _, verdict := range eligible {
		why := describeScores(verdict.Scores)
		switch {
		case verdict.Filter == "Selection":
			why = verdict.Reason
		case verdict.Selected && verdict.Replicas == 0 && r.Replicas > 0 && r.Failure == "":
			why = strings.TrimSuffix("all replicas fit into the clusters above; "+why, "; ")
		}
		p.line("  %s\t%d\t%d\t%d\t%s", verdict.Cluster, verdict.Score, r.runs(verdict.Cluster), verdict.Replicas, why)
	}
	p.table()
}

func (r *decisionReport) runs(cluster string) int32 {
	for i := range r.Running {
		if r.Running[i].Name == cluster {
			return r.Running[i].Replicas
		}
	}
	return 0
}

func describeScores(scores map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(scores)) {
		if scores[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, scores[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// printNodes prints the third tier.
func (r *decisionReport) printNodes(p *printer, eligible []schedule.Verdict) {
	asked := slices.ContainsFunc(eligible, func(v schedule.Verdict) bool { return v.Available >= 0 })
	if !asked {
		return
	}
	p.line("\nTier 3: free capacity, node by node")
	p.line("  CLUSTER\tNODES\tFITS\tRESERVED")
	for _, verdict := range eligible {
		nodes, known := r.Nodes[verdict.Cluster]
		described, reserved := "from the resource summary of the cluster", ""
		if known {
			described, reserved = fmt.Sprint(nodes.Nodes), fmt.Sprint(nodes.Promised)
			if nodes.Potential > 0 {
				described += fmt.Sprintf(", and %d that could be added", nodes.Potential)
			}
		}
		p.line("  %s\t%s\t%s\t%s", verdict.Cluster, described, describeCapacity(verdict.Available, verdict.Growth), reserved)
	}
	p.table()
}

func describeCapacity(available, growth int64) string {
	switch {
	case available < 0:
		return "unknown"
	case growth > 0:
		return fmt.Sprintf("%d, of which %d by growing", available, growth)
	default:
		return fmt.Sprint(available)
	}
}

func describePrice(price float64, currency string) string {
	if price == 0 {
		return "-"
	}
	return strings.TrimSpace(fmt.Sprintf("%.4g %s/h", price, currency))
}

func (r *decisionReport) printEnd(p *printer) {
	p.line("")
	if r.Failure != "" {
		p.line("Decision: none. %s", strings.ToUpper(r.Failure[:1])+r.Failure[1:])
		return
	}
	p.line("Decision: %s", describeTargets(r.Clusters))
	for _, note := range r.Notes {
		p.line("  %s", note)
	}
	for _, c := range r.Costs {
		p.line("Cost:     %.4g %s per hour, %.4g %s in 30 days", c.PerHour, c.Currency, c.PerHour*720, c.Currency)
	}
}
