package lua

import (
	"fmt"
	"math"
	"strings"
	"time"

	glua "github.com/yuin/gopher-lua"
)

// machine is a Lua state with the functions scripts may use. The functions are made once; the tables that hold
// them are made for each call, because a script may change those.
type machine struct {
	state   *glua.LState
	budget  *budget
	convert converter
	null    *glua.LUserData
	lookup  *glua.LTable
	base    map[string]glua.LValue
	modules map[string]map[string]glua.LValue
	now     func() time.Time
}

// The base and math functions taken over as they are: they neither load code nor touch metatables nor allocate
// more than a constant.
var (
	plainBase = []string{"assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "type", "unpack"}
	plainMath = []string{
		"abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "deg", "exp", "floor", "fmod", "frexp", "huge",
		"ldexp", "log", "log10", "max", "min", "mod", "modf", "pi", "pow", "rad", "sin", "sinh", "sqrt", "tan", "tanh",
	}
	// refused functions return an error that says so, which is clearer than a nil value.
	refused = []string{
		"collectgarbage", "dofile", "getfenv", "getmetatable", "load", "loadfile", "loadstring", "module", "newproxy",
		"print", "rawequal", "rawget", "rawset", "setfenv", "setmetatable",
	}
)

func newMachine(now func() time.Time) *machine {
	state := glua.NewState(glua.Options{
		SkipOpenLibs:     true,
		CallStackSize:    maxCallDepth,
		RegistrySize:     1 << 10,
		RegistryMaxSize:  maxRegistrySize,
		RegistryGrowStep: 1 << 10,
	})
	m := &machine{state: state, null: state.NewUserData(), now: now, base: map[string]glua.LValue{}}
	glua.OpenBase(state)
	glua.OpenMath(state)
	state.SetTop(0)
	for _, name := range plainBase {
		m.base[name] = state.G.Global.RawGetString(name)
	}
	for _, name := range []string{"pcall", "xpcall"} {
		protected, _ := state.G.Global.RawGetString(name).(*glua.LFunction)
		m.base[name] = state.NewFunction(func(l *glua.LState) int {
			m.budget.work(l, pcallSteps) // an error it catches costs a walk through the stack
			return protected.GFunction(l)
		})
	}
	for _, name := range refused {
		m.base[name] = state.NewFunction(func(l *glua.LState) int {
			l.RaiseError("%s is not available to interpreter scripts", name)
			return 0
		})
	}
	for name, function := range map[string]glua.LGFunction{
		"tostring": m.tostring, "require": m.require,
		concatFunction: m.concat, storeFunction: m.store, keyFunction: m.key, tableFunction: m.table,
	} {
		m.base[name] = state.NewFunction(function)
	}
	m.modules = map[string]map[string]glua.LValue{
		"math":   pick(state.GetGlobal("math").(*glua.LTable), plainMath),
		"string": m.functions(m.stringFunctions()),
		"table":  m.functions(m.tableFunctions()),
		"os":     m.functions(m.osFunctions()),
		"kube":   m.functions(m.kubeFunctions()),
	}
	m.lookup = state.NewTable()
	m.lookup.RawSetString("__index", state.NewFunction(m.global))
	// Methods on strings, such as ("x"):upper(). The table is private: scripts cannot reach a metatable.
	methods := state.NewTable()
	methods.RawSetString("__index", m.module("string"))
	state.SetMetatable(glua.LString(""), methods)
	return m
}

// globals returns the table of globals for one call. Entries are created on first use.
func (m *machine) globals() *glua.LTable {
	env := m.state.CreateTable(0, 8)
	env.Metatable = m.lookup
	return env
}

func (m *machine) global(l *glua.LState) int {
	env, ok := l.Get(1).(*glua.LTable)
	name := l.CheckString(2)
	value := glua.LNil
	if function, found := m.base[name]; found {
		value = function
	} else if _, found := m.modules[name]; found {
		value = m.module(name)
	} else if name == "_G" {
		value = env
	}
	if ok && value != glua.LNil {
		env.RawSetString(name, value)
	}
	l.Push(value)
	return 1
}

func (m *machine) module(name string) *glua.LTable {
	functions := m.modules[name]
	t := m.state.CreateTable(0, len(functions))
	for name, function := range functions {
		t.RawSetString(name, function)
	}
	return t
}

func (m *machine) functions(functions map[string]glua.LGFunction) map[string]glua.LValue {
	out := make(map[string]glua.LValue, len(functions))
	for name, function := range functions {
		out[name] = m.state.NewFunction(function)
	}
	return out
}

func pick(from *glua.LTable, names []string) map[string]glua.LValue {
	out := make(map[string]glua.LValue, len(names))
	for _, name := range names {
		out[name] = from.RawGetString(name)
	}
	return out
}

// require returns the only module; scripts written for Karmada begin with it.
func (m *machine) require(l *glua.LState) int {
	name := l.CheckString(1)
	if name != "kube" {
		l.RaiseError("unknown module %q; interpreter scripts can require \"kube\" only", name)
	}
	l.Push(m.module("kube"))
	return 1
}

// tostring does not show addresses, so that results are deterministic.
func (m *machine) tostring(l *glua.LState) int {
	l.Push(glua.LString(m.text(l, l.CheckAny(1))))
	return 1
}

func (m *machine) text(l *glua.LState, value glua.LValue) string {
	switch v := value.(type) {
	case glua.LString:
		return string(v)
	case *glua.LNilType, glua.LBool, glua.LNumber:
		m.budget.alloc(l, slotCost)
		return v.String()
	}
	return value.Type().String()
}

func (m *machine) concat(l *glua.LState) int {
	n := l.GetTop()
	size := 0
	parts := make([]string, n)
	for i := range parts {
		value := l.Get(i + 1)
		if !glua.LVCanConvToString(value) {
			l.RaiseError("attempt to concatenate a %s value", value.Type().String())
		}
		parts[i] = value.String()
		size += len(parts[i])
	}
	m.budget.alloc(l, size)
	l.Push(glua.LString(strings.Join(parts, "")))
	return 1
}

func (m *machine) store(l *glua.LState) int {
	t, ok := l.Get(1).(*glua.LTable)
	key := l.Get(2)
	if !ok {
		l.RaiseError("attempt to index a non-table object(%s) with key '%s'", l.Get(1).Type().String(), key.String())
	}
	m.chargeKey(l, key, t.MaxN())
	t.RawSet(key, l.Get(3))
	return 0
}

// key charges for a computed key of a table constructor, whose table is not known yet.
func (m *machine) key(l *glua.LState) int {
	m.chargeKey(l, l.Get(1), 0)
	l.SetTop(1)
	return 1
}

// chargeKey charges for storing under a key in a table whose list has the given length: the machine fills a list
// up to the position stored to.
func (m *machine) chargeKey(l *glua.LState, key glua.LValue, length int) {
	cost := slotCost
	switch k := key.(type) {
	case *glua.LNilType:
		l.RaiseError("table index is nil")
	case glua.LString:
		cost += len(k)
	case glua.LNumber:
		if math.IsNaN(float64(k)) {
			l.RaiseError("table index is NaN")
		}
		if gap := k - glua.LNumber(length); gap > 1 {
			if gap > maxListGap {
				l.RaiseError("position %s is too far beyond the end of the list", k.String())
			}
			cost += int(gap) * 16
		}
	}
	m.budget.alloc(l, cost)
}

func (m *machine) table(l *glua.LState) int {
	t := l.CheckTable(1)
	m.budget.alloc(l, tableCost+t.MaxN()*slotCost)
	l.SetTop(1)
	return 1
}

// list returns the first argument, which must be a table, and its length, and charges for walking it.
func (m *machine) list(l *glua.LState) (*glua.LTable, int) {
	t := l.CheckTable(1)
	length := t.MaxN()
	m.budget.work(l, 1+length/16)
	return t, length
}

func integer(l *glua.LState, n int, fallback int) int {
	if l.Get(n) == glua.LNil {
		return fallback
	}
	f := float64(l.CheckNumber(n))
	const limit = 1 << 40
	switch {
	case math.IsNaN(f):
		l.ArgError(n, "is not a number")
	case f > limit:
		return limit
	case f < -limit:
		return -limit
	}
	return int(f)
}

func badArgument(l *glua.LState, n int, format string, args ...any) {
	l.ArgError(n, fmt.Sprintf(format, args...))
}
