package local

import (
	"fmt"
	"slices"
	"strconv"
)

// Spec is the size of a federation.
type Spec struct {
	Cells   int `json:"cells"`
	Members int `json:"members"`
	// Nodes is the number of simulated nodes in each member.
	Nodes int `json:"nodes"`
	// Pull is the number of members, the last ones, that the federation does not reach: each has an agent.
	Pull int `json:"pull,omitempty"`
	// WithoutHub omits the hub, for tests that need only members.
	WithoutHub bool `json:"withoutHub,omitempty"`
}

// DefaultSpec is the size without any configuration.
var DefaultSpec = Spec{Cells: 2, Members: 3, Nodes: 10}

const (
	maxCells   = 26 // cell-a … cell-z
	maxMembers = 100
	maxNodes   = 5000
)

// Validate checks the sizes.
func (s Spec) Validate() error {
	for _, limit := range []struct {
		name            string
		value, min, max int
	}{
		{"cells", s.Cells, 0, maxCells},
		{"members", s.Members, 0, maxMembers},
		{"nodes", s.Nodes, 0, maxNodes},
		{"members in pull mode", s.Pull, 0, s.Members},
	} {
		if limit.value < limit.min || limit.value > limit.max {
			return fmt.Errorf("the number of %s must be between %d and %d, not %d", limit.name, limit.min, limit.max, limit.value)
		}
	}
	return nil
}

// HubName is the name of the hub's control plane.
const HubName = "hub"

// ControlPlaneNames returns the names of the hub, the cells and the members.
func (s Spec) ControlPlaneNames() []string {
	var names []string
	if !s.WithoutHub {
		names = append(names, HubName)
	}
	return slices.Concat(names, s.cellNames(), s.memberNames())
}

func (s Spec) cellNames() []string {
	names := make([]string, s.Cells)
	for i := range names {
		names[i] = "cell-" + string(rune('a'+i))
	}
	return names
}

// Pulls reports whether the member with an index has an agent.
func (s Spec) Pulls(member int) bool { return member >= s.Members-s.Pull }

func (s Spec) memberNames() []string {
	names := make([]string, s.Members)
	for i := range names {
		names[i] = "member" + strconv.Itoa(i+1)
	}
	return names
}
