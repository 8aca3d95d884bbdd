package schedule

// Attempt explains what came of one group of clusters.
type Attempt struct {
	// Affinity is the name of the group, empty if the placement has none.
	Affinity string
	// Failure is why the group was not chosen, empty if it was.
	Failure string
	// Clusters are all clusters, in the order of their names.
	Clusters []Verdict
}

// Verdict is what an attempt made of a cluster.
type Verdict struct {
	// Cluster is its name.
	Cluster string
	// Filter and Reason tell what kept the template off, empty if nothing did. The filter Selection stands for the
	// choice among clusters that could hold it.
	Filter, Reason string
	// Tier counts the overflow affinities from 1; 0 is the group itself.
	Tier int
	// Score is the sum of Scores, which is what each scorer gave. A cluster that was filtered out has none.
	Score  int64
	Scores map[string]int64
	// Available is how many more replicas, or sets of components, there is room for; -1 if nobody asked.
	Available int64
	// Selected tells whether the cluster took part in the division of replicas.
	Selected bool
	// Replicas is what the cluster was given.
	Replicas int32
}

// notSelected is the reason of clusters that could hold the template.
const notSelected = "other clusters were preferred"

func (c *cycle) explain(group *term, failure *Failure) Attempt {
	attempt := Attempt{Affinity: group.name, Clusters: make([]Verdict, len(c.candidates))}
	if failure != nil {
		attempt.Failure = failure.Message
	}
	for i := range c.candidates {
		at := &c.candidates[i]
		verdict := Verdict{
			Cluster: at.cluster.Name, Filter: at.filter, Reason: at.reason, Tier: at.tier,
			Score: at.score, Available: at.available, Selected: at.selected, Replicas: at.replicas,
		}
		if at.reason == "" {
			verdict.Scores = make(map[string]int64, len(c.scorers))
			for _, scorer := range c.scorers {
				verdict.Scores[scorer.Name()] = scorer.Score(c, at)
			}
		}
		if failure == nil && at.reason == "" && !at.selected {
			verdict.Filter, verdict.Reason = "Selection", notSelected
		}
		attempt.Clusters[i] = verdict
	}
	return attempt
}
