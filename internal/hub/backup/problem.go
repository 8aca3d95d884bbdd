package backup

import (
	"errors"
	"fmt"

	"github.com/cellplane/cellplane/internal/atrest"
)

// problem is why nothing is copied although both cells answer; the zero value means that there is none.
type problem struct{ reason, text string }

// problemOf returns the problem that an error is about.
func problemOf(err error) problem {
	switch {
	case errors.Is(err, atrest.ErrKeys) || errors.Is(err, atrest.ErrWeaker):
		return problem{reasonKeys, err.Error()}
	case errors.Is(err, errNoRoom):
		return problem{reasonNoRoom, err.Error()}
	default:
		return problem{}
	}
}

// errNoRoom means that a backup cell needs the space that it has left for its own objects.
var errNoRoom = errors.New("it has no room")

// roomIn returns an error if a backup cell has no room for copies.
func (s *source) roomIn(target string) error {
	if s.fullness == nil {
		return nil
	}
	if why := s.fullness(target); why != "" {
		return fmt.Errorf("%w: %s", errNoRoom, why)
	}
	return nil
}

// additions returns the changes that are not deletions, which give room.
func additions(changes map[string]change) map[string]change {
	added := map[string]change{}
	for key, c := range changes {
		if c.value != nil {
			added[key] = c
		}
	}
	return added
}
