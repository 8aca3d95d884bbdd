package index

import "time"

const (
	// maxOperations and maxBytes bound what is held for the next bulk; one object may exceed them.
	maxOperations = 1000
	maxBytes      = 5 << 20
)

// pending are the operations that have not been applied, in order. There is one for each document.
type pending struct {
	operations []*Operation
	byID       map[string]int // index in operations
	bytes      int
}

func (p *pending) empty() bool { return len(p.operations) == 0 }

// oldest returns since when the first operation waits; zero if there is none.
func (p *pending) oldest() time.Time {
	if p.empty() {
		return time.Time{}
	}
	return p.operations[0].since
}

func (p *pending) full() bool { return len(p.operations) >= maxOperations || p.bytes >= maxBytes }

// add adds an operation. It replaces an earlier one on the same document, unless that is of a later version.
func (p *pending) add(o *Operation, now time.Time) {
	if p.byID == nil {
		p.byID = map[string]int{}
	}
	o.since = now
	if i, found := p.byID[o.ID]; found {
		if was := p.operations[i]; was.Version <= o.Version || o.Version == 0 {
			p.bytes += len(o.Document) - len(was.Document)
			o.since = was.since
			p.operations[i] = o
		}
		return
	}
	p.byID[o.ID] = len(p.operations)
	p.operations = append(p.operations, o)
	p.bytes += len(o.Document)
}

// first returns the first operations, of a size up to limit, and one at least.
func (p *pending) first(limit int) []*Operation {
	size := 0
	for i, o := range p.operations {
		if size += len(o.Document); size > limit && i > 0 {
			return p.operations[:i]
		}
	}
	return p.operations
}

// settle removes those of the first operations that keep does not want.
func (p *pending) settle(n int, keep func(i int) bool) {
	rest := make([]*Operation, 0, len(p.operations))
	for i, o := range p.operations {
		if i >= n || keep(i) {
			rest = append(rest, o)
		}
	}
	p.operations, p.byID, p.bytes = rest, make(map[string]int, len(rest)), 0
	for i, o := range rest {
		p.byID[o.ID] = i
		p.bytes += len(o.Document)
	}
}
