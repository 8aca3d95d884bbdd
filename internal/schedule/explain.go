package schedule

// Attempt explains what came of one group of clusters.
type Attempt struct {
	// Affinity is the name of the group, empty if the placement has none.
	Affinity string `json:"affinity,omitempty"`
	// Failure is why the group was not chosen, empty if it was.
	Failure string `json:"failure,omitempty"`
	// Clusters are all clusters, in the order of their names.
	Clusters []Verdict `json:"clusters"`
}

// Verdict is what an attempt made of a cluster.
type Verdict struct {
	// Cluster is its name.
	Cluster string `json:"cluster"`
	// Filter and Reason tell what kept the template off, empty if nothing did. The filter Selection stands for the
	// choice among clusters that could hold it.
	Filter string `json:"filter,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Tier counts the overflow affinities from 1; 0 is the group itself.
	Tier int `json:"tier"`
	// Score is the sum of Scores, which is what each scorer gave. A cluster that was filtered out has none.
	Score  int64            `json:"score"`
	Scores map[string]int64 `json:"scores,omitempty"`
	// Site is the data centre, as the profile groups clusters, and Step the order in which clusters are filled.
	Site string `json:"site,omitempty"`
	Step int    `json:"step"`
	// Price of a replica for an hour, and what PriceIn it is counted in.
	Price   float64 `json:"price,omitempty"`
	PriceIn string  `json:"priceIn,omitempty"`
	// Growth is how much of Available exists only after the cluster has grown.
	Growth int64 `json:"growth,omitempty"`
	// Available is how many more replicas, or sets of components, there is room for; -1 if nobody asked.
	Available int64 `json:"available"`
	// Selected tells whether the cluster took part in the division of replicas.
	Selected bool `json:"selected"`
	// Replicas is what the cluster was given.
	Replicas int32 `json:"replicas"`
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
			Site: at.site, Step: at.step, Growth: at.growth, Price: HourlyPrice(at.profile, c.spec),
		}
		if at.profile != nil && at.profile.Spec.Price != nil {
			verdict.PriceIn = at.profile.Spec.Price.Currency
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
