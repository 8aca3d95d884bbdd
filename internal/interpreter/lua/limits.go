package lua

import (
	"context"
	"fmt"
	"time"

	glua "github.com/yuin/gopher-lua"
)

// Limits bound one call of a script. A zero field takes its default.
type Limits struct {
	// Timeout is the wall time a call may take, 5 s by default. It is a backstop and therefore generous: a process can
	// stand still for a second on a busy machine, and that must not fail honest scripts. Steps bound the work.
	Timeout time.Duration
	// Steps is the number of instructions, 500 000 by default. Library functions spend in proportion to their work.
	Steps int64
	// Memory is the number of bytes of strings and tables a call may create, 32 MiB by default. Nothing is given back.
	Memory int64
	// ResultBytes bounds the text of a result and ResultNodes its values: 4 MiB and 200 000 by default.
	ResultBytes int
	ResultNodes int
	// Concurrency is the number of calls running at once, 4 by default: it turns the bounds of one call into
	// a bound of the process.
	Concurrency int
}

const (
	maxScriptBytes  = 64 << 10
	maxSyntaxDepth  = 200
	maxValueDepth   = 100
	maxCallDepth    = 150
	maxRegistrySize = 8 << 10
	maxListGap      = 32 << 10
	pcallSteps      = 100
	tableCost       = 256
	slotCost        = 64
)

func (l Limits) withDefaults() Limits {
	if l.Timeout == 0 {
		l.Timeout = 5 * time.Second
	}
	if l.Steps == 0 {
		l.Steps = 500_000
	}
	if l.Memory == 0 {
		l.Memory = 32 << 20
	}
	if l.ResultBytes == 0 {
		l.ResultBytes = 4 << 20
	}
	if l.ResultNodes == 0 {
		l.ResultNodes = 200_000
	}
	if l.Concurrency == 0 {
		l.Concurrency = 4
	}
	return l
}

// budget is what is left of the limits of one call. The Lua machine asks its context whether it is done before each
// instruction; being that context is how the budget counts steps, and why an exhausted script cannot go on.
type budget struct {
	context.Context
	limits   Limits
	done     <-chan struct{}
	steps    int64
	memory   int64
	exceeded error
}

var closed = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

func newBudget(ctx context.Context, limits Limits) *budget {
	return &budget{Context: ctx, limits: limits, done: ctx.Done(), steps: limits.Steps, memory: limits.Memory}
}

// Done spends a step and returns a closed channel once the budget is exhausted.
func (b *budget) Done() <-chan struct{} {
	b.steps--
	if b.steps < 0 && b.exceeded == nil {
		b.exceeded = fmt.Errorf("it took more than %d steps", b.limits.Steps)
	}
	if b.exceeded != nil {
		return closed
	}
	return b.done
}

// Err says why the call has to end.
func (b *budget) Err() error {
	if b.exceeded != nil {
		return b.exceeded
	}
	if err := b.Context.Err(); err != nil {
		return fmt.Errorf("it took more than %s: %w", b.limits.Timeout, err)
	}
	return nil
}

// work spends steps for a library function that does more than one instruction's worth.
func (b *budget) work(l *glua.LState, steps int) {
	b.steps -= int64(steps)
	if b.steps < 0 && b.exceeded == nil {
		b.exceeded = fmt.Errorf("it took more than %d steps", b.limits.Steps)
	}
	b.stop(l)
}

// alloc spends memory before it is taken.
func (b *budget) alloc(l *glua.LState, bytes int) {
	b.memory -= int64(bytes)
	if b.memory < 0 && b.exceeded == nil {
		b.exceeded = fmt.Errorf("it used more than %d bytes of memory", b.limits.Memory)
	}
	b.stop(l)
}

func (b *budget) stop(l *glua.LState) {
	if b.exceeded != nil {
		l.RaiseError("%s", b.exceeded.Error())
	}
}
