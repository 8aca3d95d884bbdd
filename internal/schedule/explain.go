package schedule

// Attempt explains the result of one affinity term.
type Attempt struct {
	// Affinity is the name of the term, empty if the placement has no terms.
	Affinity string `json:"affinity,omitempty"`
	// Failure is why the term was not chosen, empty if it was.
	Failure string `json:"failure,omitempty"`
	// Clusters are all clusters, sorted by name.
	Clusters []Verdict `json:"clusters"`
}

// Verdict explains the result of an attempt for one cluster.
type Verdict struct {
	// Cluster is its name.
	Cluster string `json:"cluster"`
	// Filter and Reason say what excluded the cluster; empty if nothing did. The filter Selection stands for the
	// selection among eligible clusters.
	Filter string `json:"filter,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Tier is 0 for the term itself and counts its overflow affinities from 1.
	Tier int `json:"tier"`
	// Score is the sum of Scores, the scores of each scorer. An excluded cluster has none.
	Score  int64            `json:"score"`
	Scores map[string]int64 `json:"scores,omitempty"`
	// Site is the cluster's site by the profile, and Step its position in the order in which clusters are used.
	Site string `json:"site,omitempty"`
	Step int    `json:"step"`
	// Price of a replica per hour, in the currency PriceIn.
	Price   float64 `json:"price,omitempty"`
	PriceIn string  `json:"priceIn,omitempty"`
	// Growth is the part of Available that exists only after the cluster grows.
	Growth int64 `json:"growth,omitempty"`
	// Available is how many more replicas, or sets of components, fit; -1 if not estimated.
	Available int64 `json:"available"`
	// Selected reports whether the cluster took part in the division of replicas.
	Selected bool `json:"selected"`
	// Replicas is the number of replicas assigned to the cluster.
	Replicas int32 `json:"replicas"`
}

// notSelected is the reason for eligible clusters that were not selected.
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
