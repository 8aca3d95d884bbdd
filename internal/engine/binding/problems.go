package binding

import (
	"strings"
	"sync"

	"github.com/cellplane/cellplane/internal/engine/cell"
)

// problems remembers why the Works of bindings could not be written.
type problems struct {
	changed func(binding cell.Key)

	mu sync.Mutex
	of map[cell.Key]string
}

// Problem returns why the Works of a binding could not be written, "" if they could.
func (b *Controller) Problem(binding cell.Key) string {
	b.problems.mu.Lock()
	defer b.problems.mu.Unlock()
	return b.problems.of[binding]
}

func (p *problems) set(binding cell.Key, problem string) {
	if p.replace(binding, problem) {
		p.changed(binding)
	}
}

func (p *problems) replace(binding cell.Key, problem string) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[binding] == problem {
		return false
	}
	if p.of[binding] = problem; problem == "" {
		delete(p.of, binding)
	}
	return true
}

// longestProblem keeps messages within what a condition should hold: an API server may quote a whole object.
const longestProblem = 1024

func describe(err error) string {
	// Invalid UTF-8 would be stored as something else, differ at every comparison and be written over and over.
	text := strings.ToValidUTF8("Works could not be updated: "+err.Error(), "\uFFFD")
	if len(text) > longestProblem {
		text = strings.ToValidUTF8(text[:longestProblem-3], "") + "..."
	}
	return text
}
