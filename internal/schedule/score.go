package schedule

// scorer ranks the clusters that may hold a template. Scores go from 0 to maxScore and are added up.
type scorer interface {
	// Name is what explanations call the scorer.
	Name() string
	// Score returns how good the cluster is for the template.
	Score(*cycle, *candidate) int64
}

// maxScore is the best score of a scorer.
const maxScore = 100

// locality prefers clusters that hold the template already, so that it does not wander.
type locality struct{}

// Name implements scorer.
func (locality) Name() string { return "ClusterLocality" }

// Score implements scorer.
func (locality) Score(_ *cycle, at *candidate) int64 {
	if at.held {
		return maxScore
	}
	return 0
}

// defaultScorers are those that count without a profile. An affinity selects clusters and has no preferences among them,
// so it has no scorer.
var defaultScorers = []scorer{locality{}}
