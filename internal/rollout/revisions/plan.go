package revisions

import (
	"cmp"
	"slices"
)

// Plan is what is to be done with the revisions of a workload. Revisions are named by their index.
type Plan struct {
	// Number is that of the present revision.
	Number int64
	// Create means that the present revision is to be created.
	Create bool
	// Renew is the revision that is to be given the number, and the annotations of the workload; -1 if none.
	Renew int
	// Remove are the revisions beyond the limit, the oldest first, and before them second revisions of the present pod template.
	Remove []int
}

// Next plans for a workload with its stored revisions. A pod template that the workload has had before gets a new number, and no second revision. Nothing has to be
// done at once: whatever was done of a plan, the next plan is for the rest.
func Next(present Record, stored []Record, limit int) Plan {
	p := Plan{Create: true, Renew: -1}
	current, newest := -1, int64(0)
	for i := range stored {
		if stored[i].Template == present.Template && (current < 0 || stored[i].Number > stored[current].Number) {
			current = i
		}
	}
	var others []int
	for i := range stored {
		switch {
		case i == current:
			continue
		case stored[i].Template == present.Template: // two engines have created it under two names
			p.Remove = append(p.Remove, i)
		default:
			others = append(others, i)
		}
		newest = max(newest, stored[i].Number)
	}
	if p.Number = newest + 1; current >= 0 {
		p.Create = false
		if now := stored[current]; now.Number > newest {
			p.Number = now.Number
		}
		if now := stored[current]; now.Number != p.Number || now.Annotations != present.Annotations {
			p.Renew = current
		}
	}
	slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(stored[a].Number, stored[b].Number) })
	if beyond := len(others) - limit; beyond > 0 {
		p.Remove = append(p.Remove, others[:beyond]...)
	}
	return p
}
