package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustergateway/index"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
)

const (
	// maxProblems is how many problems a condition names, and maxProblem the length of one.
	maxProblems = 5
	maxProblem  = 300
)

// Reasons of conditions, besides the states of ingest and of indexes.
const (
	reasonInvalid    = "Invalid"
	reasonNoClusters = "NoClusters"
)

// Conditions returns for each ResourceRegistry whether everything that it selects is cached. Transition times are left to the caller.
func (s *Selection) Conditions(of string, clusters []*clusterv1alpha1.Cluster, progress []ingest.Progress) map[string]metav1.Condition {
	all := map[string]metav1.Condition{}
	for _, r := range s.registries {
		condition := r.condition(clusters, progress)
		condition.Type = of
		all[r.name] = condition
	}
	return all
}

func (r *compiled) condition(clusters []*clusterv1alpha1.Cluster, progress []ingest.Progress) metav1.Condition {
	if r.err != nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonInvalid, Message: r.err.Error()}
	}
	matched := map[string]bool{}
	for _, cluster := range clusters {
		if r.clusters.Matches(cluster) {
			matched[cluster.Name] = true
		}
	}
	if len(matched) == 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonNoClusters, Message: "spec.targetCluster selects no cluster"}
	}
	var problems []ingest.Progress
	for _, p := range progress {
		if p.State != ingest.Followed && matched[p.Cluster] && slices.ContainsFunc(r.kinds, func(k selector) bool { return k.kind == p.Kind }) {
			problems = append(problems, p)
		}
	}
	if len(problems) == 0 {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: string(ingest.Followed), Message: fmt.Sprintf("cached from %d clusters", len(matched))}
	}
	slices.SortFunc(problems, func(a, b ingest.Progress) int {
		return strings.Compare(a.Cluster+" "+a.Kind.String(), b.Cluster+" "+b.Kind.String())
	})
	var texts []string
	for _, p := range problems[:min(maxProblems, len(problems))] {
		texts = append(texts, explain(p))
	}
	if more := len(problems) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: string(worst(problems)), Message: strings.Join(texts, "; ")}
}

// Indexed returns for each ResourceRegistry with a backend store whether everything that it selects is indexed.
func (s *Selection) Indexed(of string, clusters []*clusterv1alpha1.Cluster, progress []index.Progress) map[string]metav1.Condition {
	all := map[string]metav1.Condition{}
	for _, r := range s.registries {
		if r.target == nil {
			continue
		}
		condition := r.indexed(clusters, progress)
		condition.Type = of
		all[r.name] = condition
	}
	return all
}

func (r *compiled) indexed(clusters []*clusterv1alpha1.Cluster, progress []index.Progress) metav1.Condition {
	if err := cmp.Or(r.err, r.targetErr); err != nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonInvalid, Message: err.Error()}
	}
	matched := 0
	for _, cluster := range clusters {
		if r.clusters.Matches(cluster) {
			matched++
		}
	}
	if matched == 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonNoClusters, Message: "spec.targetCluster selects no cluster"}
	}
	var problems []index.Progress
	for _, p := range progress {
		if p.Target == *r.target && p.State != index.Indexed && slices.ContainsFunc(r.kinds, func(k selector) bool { return k.kind == p.Kind }) {
			problems = append(problems, p)
		}
	}
	if len(problems) == 0 {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: string(index.Indexed), Message: fmt.Sprintf("indexed from %d clusters", matched)}
	}
	slices.SortFunc(problems, func(a, b index.Progress) int { return cmp.Compare(a.Kind.String(), b.Kind.String()) })
	var texts []string
	for _, p := range problems[:min(maxProblems, len(problems))] {
		texts = append(texts, fmt.Sprintf("%s of %s: %s", p.Kind.Kind, p.Kind.GroupVersion(), p.Message))
	}
	if more := len(problems) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: string(worstIndex(problems)), Message: strings.Join(texts, "; ")}
}

// worstIndex returns the state that most needs somebody to act.
func worstIndex(problems []index.Progress) index.State {
	for _, state := range []index.State{index.Failing, index.Refusing, index.Behind} {
		if slices.ContainsFunc(problems, func(p index.Progress) bool { return p.State == state }) {
			return state
		}
	}
	return index.Indexing
}

// worst returns the state that most needs somebody to act.
func worst(problems []ingest.Progress) ingest.State {
	for _, state := range []ingest.State{ingest.Denied, ingest.NotServed, ingest.Unreachable} {
		if slices.ContainsFunc(problems, func(p ingest.Progress) bool { return p.State == state }) {
			return state
		}
	}
	return ingest.Reading
}

func explain(p ingest.Progress) string {
	what := fmt.Sprintf("%s of %s in cluster %s", p.Kind.Kind, p.Kind.GroupVersion(), p.Cluster)
	switch p.State {
	case ingest.NotServed:
		return what + " is not served"
	case ingest.Denied:
		return what + " cannot be read: grant get, list and watch to the federation's status identity there"
	case ingest.Reading:
		return what + " is being read"
	default:
		if len(p.Message) > maxProblem {
			p.Message = p.Message[:maxProblem] + "…"
		}
		return what + " cannot be watched: " + p.Message
	}
}
