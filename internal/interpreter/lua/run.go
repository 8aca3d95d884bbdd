package lua

import (
	"context"
	"fmt"
	"sync"
	"time"

	glua "github.com/yuin/gopher-lua"
)

// Runner runs scripts within limits. It is safe for concurrent use.
type Runner struct {
	limits   Limits
	now      func() time.Time
	running  chan struct{}
	machines sync.Pool
}

// NewRunner returns a runner. The clock is what scripts see as the time; nil means the real one.
func NewRunner(limits Limits, now func() time.Time) *Runner {
	if now == nil {
		now = time.Now
	}
	limits = limits.withDefaults()
	return &Runner{limits: limits, now: now, running: make(chan struct{}, limits.Concurrency)}
}

// Call runs a script's function on JSON values (as unstructured objects hold them) and returns as many results as
// asked for. Results share no tables with the script but may share text and values with the arguments. An empty table
// of which nothing reports whether it is a list or an object is nil as a result, and absent as a field of one.
func (r *Runner) Call(ctx context.Context, script *Script, results int, args ...any) ([]any, error) {
	select {
	case r.running <- struct{}{}:
		defer func() { <-r.running }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: waiting for other scripts to finish: %w", script.name, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, r.limits.Timeout)
	defer cancel()

	m, _ := r.machines.Get().(*machine)
	if m == nil {
		m = newMachine(r.now)
	}
	out, err := m.run(newBudget(ctx, r.limits), script, results, args)
	if err != nil {
		// The machine is dropped: its stacks are unreliable after an error.
		m.state.Close()
		return nil, fmt.Errorf("%s: %w", script.name, err)
	}
	r.machines.Put(m)
	return out, nil
}

// run executes the script from the start, so that no state is shared between calls.
func (m *machine) run(b *budget, script *Script, results int, args []any) ([]any, error) {
	m.budget = b
	m.state.SetContext(b)
	m.state.Env = m.globals()
	m.convert = converter{state: m.state, null: m.null, limits: b.limits, inputs: args, keys: m.convert.keys[:0]}
	defer func() { m.budget, m.convert.inputs, m.convert.large = nil, nil, nil }()

	m.state.Push(m.state.NewFunctionFromProto(script.proto))
	if err := m.protect(0, 0); err != nil {
		return nil, err
	}
	function, ok := m.state.Env.RawGetString(script.function).(*glua.LFunction)
	if !ok {
		return nil, fmt.Errorf("the script defines no global function %s", script.function)
	}
	m.state.Push(function)
	for i, arg := range args {
		value, err := m.convert.toLua(arg)
		if err != nil {
			return nil, fmt.Errorf("passing argument %d to %s: %w", i+1, script.function, err)
		}
		m.state.Push(value)
	}
	if err := m.protect(len(args), results); err != nil {
		return nil, err
	}
	out := make([]any, results)
	for i := range out {
		value, err := m.convert.fromLua(m.state.Get(i + 1))
		if err != nil {
			return nil, fmt.Errorf("reading what %s returned: %w", script.function, err)
		}
		if _, open := value.(undecided); open {
			value = nil
		}
		out[i] = value
	}
	m.state.SetTop(0)
	return out, nil
}

func (m *machine) protect(args, results int) error {
	err := m.pcall(args, results)
	if m.budget.exceeded != nil {
		return fmt.Errorf("the script was stopped: %w", m.budget.exceeded)
	}
	if timeout := m.budget.Context.Err(); timeout != nil {
		return fmt.Errorf("the script was stopped: %w", m.budget.Err())
	}
	if err != nil {
		return fmt.Errorf("the script failed: %s", tidy(err.Error()))
	}
	return nil
}

// pcall recovers once more: the machine's own protected call can panic, for example on a full stack between two
// frames.
func (m *machine) pcall(args, results int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Lua machine failed: %v", r)
		}
	}()
	return m.state.PCall(args, results, nil)
}
