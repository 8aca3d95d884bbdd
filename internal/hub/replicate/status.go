package replicate

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Phase is the state of a cell.
type Phase string

const (
	// OutOfContact cells are unreachable.
	OutOfContact Phase = "OutOfContact"
	// Refused cells belong to another hub.
	Refused Phase = "Refused"
	// Syncing cells are being compared with the hub.
	Syncing Phase = "Syncing"
	// Following cells get changes as they happen.
	Following Phase = "Following"
)

// Status is the state of replication to a cell.
type Status struct {
	Phase Phase `json:"phase"`
	// Reason is why the cell is unreachable or refused.
	Reason string `json:"reason,omitempty"`
	// Pending is how many changes of the hub the cell has not confirmed, and Lag the age of the oldest.
	Pending int           `json:"pending"`
	Lag     time.Duration `json:"lag"`
	// Obstacles are objects that cannot be copied or removed, sorted.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// UpTo is the resourceVersion of the hub up to which all objects of a kind have been copied, by resource. A kind with
	// pending changes is left out.
	UpTo map[string]string `json:"upTo,omitempty"`
}

// CaughtUp reports whether the cell has everything that the hub manager has seen on the hub.
func (s Status) CaughtUp() bool {
	return s.Phase == Following && s.Pending == 0
}

// Obstacle is an object in a cell for which an action fails.
type Obstacle struct {
	Kind string `json:"kind"`
	// Object is its name, with the namespace in front if it has one.
	Object string `json:"object"`
	// Reason is the action that fails, or Conflict or Foreign for an object that is not a copy.
	Reason Action `json:"reason"`
	// Message explains it.
	Message string `json:"message"`
}

// Harmless reports whether the obstacle blocks nothing.
func (o Obstacle) Harmless() bool { return o.Reason == Foreign }

// remember notes that objects have changed on the hub.
func (s *session) remember(keys []objectKey) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if _, known := s.pending[key]; !known {
			s.pending[key] = now
		}
	}
}

// done notes that the cell is up to date with an object.
func (s *session) done(key objectKey) {
	s.queue.Forget(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, key)
	delete(s.obstacles, key)
}

// block notes an obstacle, and reports an object that is not a copy once.
func (s *session) block(key objectKey, obstacle Obstacle) {
	s.mu.Lock()
	former, known := s.obstacles[key]
	s.obstacles[key] = obstacle
	if obstacle.Reason == Conflict || obstacle.Reason == Foreign {
		delete(s.pending, key)
	}
	s.mu.Unlock()
	news := !known || former.Reason != obstacle.Reason
	if news && s.options.Report != nil && (obstacle.Reason == Conflict || obstacle.Reason == Foreign) {
		s.options.Report(s.name, obstacle)
	}
}

func (c *cell) status(now time.Time) Status {
	session, reason := c.current()
	if session != nil {
		return session.status(now)
	}
	phase := OutOfContact
	if errors.Is(reason, errAnotherHub) {
		phase = Refused
	}
	return Status{Phase: phase, Reason: reason.Error()}
}

func (s *session) status(now time.Time) Status {
	status := Status{Phase: Following, UpTo: map[string]string{}}
	// Versions are read before what is pending, so that they never claim too much.
	heard := make([]*string, len(s.kinds))
	for i, kind := range s.kinds {
		heard[i] = kind.heard.Load()
		if !kind.replayed.Load() {
			status.Phase, heard[i] = Syncing, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status.Pending = len(s.pending)
	for key, since := range s.pending {
		status.Lag = max(status.Lag, now.Sub(since))
		heard[key.kind] = nil
	}
	for i, version := range heard {
		if version != nil {
			status.UpTo[s.kinds[i].rule.Resource.GroupResource().String()] = *version
		}
	}
	for _, obstacle := range s.obstacles {
		status.Obstacles = append(status.Obstacles, obstacle)
	}
	slices.SortFunc(status.Obstacles, func(a, b Obstacle) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object, b.Object))
	})
	return status
}
