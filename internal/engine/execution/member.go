package execution

import "github.com/cellplane/cellplane/internal/fleet"

// Member returns the connection to a member, or why there is none.
func (e *Controller) Member(cluster string) (*fleet.Member, error) {
	l := e.lane(cluster)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.member == nil {
		return nil, l.problem
	}
	return l.member, nil
}
