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

// Request is a binding as the scheduler sees it. Only Spec is required.
type Request struct {
	Spec *workv1alpha2.ResourceBindingSpec
	// UID of the template; it breaks ties, so that not all templates favour the same cluster.
	UID types.UID
	// Affinity is the group of clusters in use, empty to begin with the first.
	Affinity string
	// Fresh divides all replicas anew. Without it only the replicas that are missing or too many move.
	Fresh bool
	// Estimators tell how many more replicas clusters have room for; the lowest answer counts. Without any, General
	// answers from the clusters' own summaries, and so it does for a cluster that no estimator knows.
	Estimators []Estimator
	// Growth tells how much of the room that Estimators see would exist only after the cluster has grown; nil means none.
	Growth Estimator
	// Profile is the preferences among clusters. Without one the placement alone decides.
	Profile *cellplanev1alpha1.SchedulingProfileSpec
	// Progress says how far earlier moves have come. A profile that moves replicas at a pace needs it.
	Progress Progress
	// AffinityClusters hold other templates of the affinity group in spec.workloadAffinityGroups.
	AffinityClusters []string
	// AntiAffinityClusters hold other templates of the anti-affinity group in spec.workloadAffinityGroups.
	AntiAffinityClusters []string
	// Snapshot is the clusters, compiled; Plan then ignores its other argument.
	Snapshot *Snapshot
	// Plugins are the filters and scores that take part; nil means all of them.
	Plugins *Plugins
	// EmptyWorkloads has clusters hold the template that were chosen and get no replicas of it.
	EmptyWorkloads bool
	// Explain asks for a verdict on every cluster.
	Explain bool
}

// Progress says how far earlier moves have come.
type Progress struct {
	// Now is the time of the decision.
	Now time.Time
	// MovedAt is when replicas were last moved at a pace; zero if never.
	MovedAt time.Time
	// Ready counts the replicas that are ready in all clusters.
	Ready int32
}

// Result is a decision.
type Result struct {
	// Clusters are sorted by name.
	Clusters []workv1alpha2.TargetCluster
	// Affinity is the group of clusters that was chosen, if the placement has groups.
	Affinity string
	// Moved counts the replicas that this decision moves at a pace. The caller remembers when, see Progress.MovedAt.
	Moved int32
	// Again is after what time another decision is due, because moves at a pace are not done; zero if they are.
	Again time.Duration
	// Stranded counts the replicas that would move as soon as there is room elsewhere.
	Stranded int32
	// Notes are sentences about what was decided for a reason that the placement does not give.
	Notes []string
	// Attempts explain the decision, if that was asked for.
	Attempts []Attempt
}

// Failure says why no decision could be made. It becomes the condition Scheduled=False.
type Failure struct { //nolint:errname // it is a result, too
	Reason, Message string
	// Attempts explain the failure, if that was asked for.
	Attempts []Attempt
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// ClearsResult tells whether earlier decisions are to be taken back.
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

// term is one group of clusters to try: the primary tier and those that take what it cannot hold.
type term struct {
	name  string
	tiers []affinity.Matcher
}

// terms returns the groups to try, in order. They begin with the one in use: there is no way back but a change of the
// placement or a request to begin anew.
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
		return term{}, unschedulable("clusterAffinities %q: overflowAffinities work only where replicas are divided by dynamicWeight or Aggregated", group.AffinityName)
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

// merge makes one failure of those of all groups. The first, that of the group in use, decides whether earlier
// decisions are taken back.
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

func unschedulable(format string, args ...any) *Failure {
	return &Failure{Reason: names.ReasonUnschedulable, Message: fmt.Sprintf(format, args...)}
}
