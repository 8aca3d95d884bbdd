package binding

import (
	"strings"
	"sync"

	"github.com/cellplane/cellplane/internal/engine/cell"
)

// problems remembers why bindings have not got the Works that they ask for.
type problems struct {
	changed func(binding cell.Key)

	mu sync.Mutex
	of map[cell.Key]string
}

// Problem returns why a binding has not got the Works that it asks for; it is empty if it has.
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

// longestProblem keeps what an API server quotes back at us out of conditions.
const longestProblem = 1024

func describe(err error) string {
	// Half a letter would be written as another one than it is compared with, and so be written again and again.
	text := strings.ToValidUTF8("The works cannot be brought up to date: "+err.Error(), "\uFFFD")
	if len(text) > longestProblem {
		text = strings.ToValidUTF8(text[:longestProblem-3], "") + "..."
	}
	return text
}
