package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/affinity"
)

// Request is the input of a decision. Only Spec is required.
type Request struct {
	Spec *workv1alpha2.ResourceBindingSpec
	// UID of the template. It breaks ties, so that not all templates prefer the same cluster.
	UID types.UID
	// Affinity is the affinity term in use; empty starts with the first.
	Affinity string
	// Fresh divides all replicas again. Otherwise only missing or excess replicas move.
	Fresh bool
	// Estimators return the free capacity of clusters; the lowest result counts. If there are none, or none knows a
	// cluster, General is used.
	Estimators []Estimator
	// Growth returns the part of the estimated capacity that exists only after the cluster grows; nil means none.
	Growth Estimator
	// Profile holds preferences among clusters. Without one, the placement alone decides.
	Profile *cellplanev1alpha1.SchedulingProfileSpec
	// Progress is the progress of paced moves. It is required for profiles with a pace.
	Progress Progress
	// AffinityClusters hold other templates of the affinity group in spec.workloadAffinityGroups.
	AffinityClusters []string
	// AntiAffinityClusters hold other templates of the anti-affinity group in spec.workloadAffinityGroups.
	AntiAffinityClusters []string
	// Snapshot holds the compiled clusters. If set, Plan ignores its second argument.
	Snapshot *Snapshot
	// Plugins are the enabled filters and scorers; nil enables all.
	Plugins *Plugins
	// EmptyWorkloads propagates the template to selected clusters that get no replicas.
	EmptyWorkloads bool
	// Explain requests a verdict on every cluster.
	Explain bool
}

// Progress is the progress of paced moves.
type Progress struct {
	// Now is the time of the decision.
	Now time.Time
	// MovedAt is the time of the last paced move; zero if there was none.
	MovedAt time.Time
	// Ready is the number of ready replicas in all clusters.
	Ready int32
}

// Result is a successful decision.
type Result struct {
	// Clusters are sorted by name.
	Clusters []workv1alpha2.TargetCluster
	// Affinity is the chosen affinity term, if the placement has terms.
	Affinity string
	// Moved is the number of replicas moved by pace. The caller keeps the time, see Progress.MovedAt.
	Moved int32
	// Again is the delay until the next decision if paced moves are not finished; otherwise zero.
	Again time.Duration
	// Stranded is the number of replicas that would move if other clusters had capacity.
	Stranded int32
	// Notes explain parts of the decision that do not follow from the placement.
	Notes []string
	// Attempts explain the decision, if requested.
	Attempts []Attempt
}

// Failure says why no decision could be made. It becomes the condition Scheduled=False.
type Failure struct { //nolint:errname // it is a result, too
	Reason, Message string
	// Attempts explain the failure, if requested.
	Attempts []Attempt
}

// Error implements error.
func (f *Failure) Error() string { return f.Message }

// ClearsResult reports whether the previous clusters are removed.
func (f *Failure) ClearsResult() bool { return f.Reason == names.ReasonNoClusterFit }

// Plan decides. The error is always a *Failure.
func Plan(request Request, clusters []*clusterv1alpha1.Cluster) (Result, error) {
	snapshot := request.Snapshot
	if snapshot == nil {
		snapshot = Compile(clusters)
	}
	c := newCycle(&request, snapshot)
	terms, failure := c.terms()
	if failure != nil {
		return Result{}, failure
	}
	var attempts []Attempt
	var failures []*Failure
	for i := range terms {
		targets, failure := c.attempt(&terms[i])
		if request.Explain {
			attempts = append(attempts, c.explain(&terms[i], failure))
		}
		if failure == nil {
			return Result{
				Clusters: targets, Affinity: terms[i].name, Moved: c.moved, Again: c.again, Stranded: c.stranded, Notes: c.notes, Attempts: attempts,
			}, nil
		}
		failures = append(failures, failure)
	}
	failure = merge(terms, failures)
	failure.Attempts = attempts
	return Result{}, failure
}

// term is one affinity term: the primary tier and its overflow tiers.
type term struct {
	name  string
	tiers []affinity.Matcher
}

// terms returns the terms to try, in order, beginning with the one in use. Earlier terms are tried again only after
// a change of the placement or a requested rescheduling.
func (c *cycle) terms() ([]term, *Failure) {
	groups := c.placement.ClusterAffinities
	if len(groups) == 0 {
		matcher, err := affinity.Compile(c.placement.ClusterAffinity)
		if err != nil {
			return nil, unschedulable("clusterAffinity: %v", err)
		}
		return []term{{tiers: []affinity.Matcher{matcher}}}, nil
	}
	first := max(0, slices.IndexFunc(groups, func(group policyv1alpha1.ClusterAffinityTerm) bool {
		return group.AffinityName == c.request.Affinity
	}))
	var terms []term
	for i := first; i < len(groups); i++ {
		compiled, failure := c.compileTerm(&groups[i])
		if failure != nil {
			return nil, failure
		}
		terms = append(terms, compiled)
	}
	return terms, nil
}

func (c *cycle) compileTerm(group *policyv1alpha1.ClusterAffinityTerm) (term, *Failure) {
	if len(group.OverflowAffinities) > 0 && !c.strategy.byCapacity() {
		return term{}, unschedulable("clusterAffinities %q: overflowAffinities require replicas divided by dynamicWeight or Aggregated", group.AffinityName)
	}
	affinities := []*policyv1alpha1.ClusterAffinity{&group.ClusterAffinity}
	for i := range group.OverflowAffinities {
		affinities = append(affinities, &group.OverflowAffinities[i].ClusterAffinity)
	}
	compiled := term{name: group.AffinityName}
	for _, wanted := range affinities {
		matcher, err := affinity.Compile(wanted)
		if err != nil {
			return term{}, unschedulable("clusterAffinities %q: %v", group.AffinityName, err)
		}
		compiled.tiers = append(compiled.tiers, matcher)
	}
	return compiled, nil
}

// merge combines the failures of all terms. The first one, of the term in use, decides whether the previous
// clusters are removed.
func merge(terms []term, failures []*Failure) *Failure {
	if len(failures) == 1 {
		return failures[0]
	}
	var parts []string
	for i, failure := range failures {
		parts = append(parts, fmt.Sprintf("group %q: %s", terms[i].name, strings.TrimSuffix(failure.Message, ".")))
	}
	return &Failure{Reason: failures[0].Reason, Message: strings.Join(parts, "; ") + "."}
}

// impossible is the failure of spread constraints. Its reason and wording are Karmada's.
func impossible(format string, args ...any) *Failure {
	return &Failure{Reason: names.ReasonSchedulerError, Message: fmt.Sprintf(format, args...)}
}

// unschedulable means that capacity is missing, or that the placement is contradictory.
func unschedulable(format string, args ...any) *Failure {
	return &Failure{Reason: names.ReasonUnschedulable, Message: fmt.Sprintf(format, args...)}
}
