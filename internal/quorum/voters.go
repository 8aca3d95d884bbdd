package quorum

import (
	"slices"
	"time"

	"github.com/cellplane/cellplane/internal/slots"
)

const (
	// Hub is the hub's name among the voters. No cell has it.
	Hub = ""
	// DefaultLength is how long a lease lasts after the reads that confirm it were sent.
	DefaultLength = 3 * time.Second
	// MaxLength bounds the length that a gateway may be given.
	MaxLength = time.Minute
	// margin is the part of the length by which Wait exceeds it. It covers clocks that each run fast or slow by up to 5 %.
	margin = 5
)

// Voters returns the voters of a topology: all cells that have not failed and, if their number is even, the hub. Beside an odd number of
// cells the vote of the hub would only raise the majority.
func Voters(topology []slots.Cell) []string {
	var cells []string
	for _, cell := range topology {
		if cell.State != slots.Failed {
			cells = append(cells, cell.Name)
		}
	}
	return withHub(cells)
}

// CellsOf returns the cells of a compiled topology.
func CellsOf(topology *slots.Map) []slots.Cell {
	cells := make([]slots.Cell, topology.Cells())
	for i := range cells {
		cells[i] = topology.Cell(slots.Index(i))
	}
	return cells
}

func withHub(cells []string) []string {
	if len(cells)%2 == 0 {
		return append(cells, Hub)
	}
	return cells
}

// Majority returns the smallest number of voters of which two groups always share one.
func Majority(voters int) int { return voters/2 + 1 }

// Raised reports whether floors are raised at enough voters that no gateway can renew its lease at an earlier epoch, whichever of the
// topologies since the last one in force it uses. The hub's floor has to be raised, too.
//
// inForce are the cells that had not failed in the last topology in force; nil means unknown. pending are the cells that have failed and
// whose share nobody has taken over yet. They, and cells that have begun to join since, were voters in some of these topologies and not
// in others, so every part of them is considered. raised says of each cell whether its floor is raised: failed cells that can be reached
// count as well. Cells that have left since had their floors raised before.
func Raised(topology []slots.Cell, inForce, pending []string, raised func(cell string) bool) bool {
	var settled, changing []string
	for _, cell := range topology {
		switch {
		case slices.Contains(pending, cell.Name):
			changing = append(changing, cell.Name)
		case cell.State == slots.Failed:
		case slices.Contains(inForce, cell.Name) || inForce == nil && cell.State == slots.Normal:
			settled = append(settled, cell.Name)
		default:
			changing = append(changing, cell.Name)
		}
	}
	if len(changing) > maxChanging {
		return false
	}
	for part := range 1 << len(changing) {
		cells := slices.Clone(settled)
		for i, name := range changing {
			if part&(1<<i) != 0 {
				cells = append(cells, name)
			}
		}
		if len(cells) > 0 && !majorityOf(withHub(cells), raised) {
			return false
		}
	}
	return true
}

// maxChanging bounds how many cells may change at once.
const maxChanging = 16

func majorityOf(voters []string, raised func(string) bool) bool {
	count := 0
	for _, voter := range voters {
		if voter == Hub || raised(voter) {
			count++
		}
	}
	return count >= Majority(len(voters))
}

// Wait returns how long to wait after the floors were raised until no gateway holds a lease of some length, with a margin for clocks that
// run apart.
func Wait(length time.Duration) time.Duration {
	return length + length/margin + 100*time.Millisecond
}
