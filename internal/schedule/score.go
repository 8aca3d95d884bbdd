package schedule

// scorer ranks eligible clusters. Scores range from 0 to maxScore and are added up.
type scorer interface {
	// Name is the name of the scorer in explanations.
	Name() string
	// Score returns the score of a cluster for the template.
	Score(*cycle, *candidate) int64
}

// maxScore is the highest score of a scorer.
const maxScore = 100

// locality prefers clusters that hold the template already.
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

// defaultScorers are used without a profile. Affinities select clusters but do not rank them, so there is no scorer
// for them.
var defaultScorers = []scorer{locality{}}
