package execution

import "github.com/cellplane/cellplane/internal/fleet"

// Member returns the connection to a member, or an error that says why there is none.
func (e *Controller) Member(cluster string) (*fleet.Member, error) {
	q := e.queueOf(cluster)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member == nil {
		return nil, q.problem
	}
	return q.member, nil
}
