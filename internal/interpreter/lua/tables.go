package lua

import (
	"math/bits"
	"sort"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

func (m *machine) tableFunctions() map[string]glua.LGFunction {
	return map[string]glua.LGFunction{
		"concat": m.tableConcat, "getn": m.tableLength, "insert": m.tableInsert,
		"maxn": m.tableLength, "remove": m.tableRemove, "sort": m.tableSort,
	}
}

func (m *machine) tableLength(l *glua.LState) int {
	_, n := m.list(l)
	l.Push(glua.LNumber(n))
	return 1
}

func (m *machine) tableInsert(l *glua.LState) int {
	t, n := m.list(l)
	at, value := n+1, l.Get(2)
	if l.GetTop() > 2 {
		at, value = integer(l, 2, 0), l.Get(3)
	}
	if l.GetTop() < 2 || at < 1 || at > n+1 {
		l.RaiseError("bad arguments to insert: the position must be within the list or right after it")
	}
	m.budget.alloc(l, slotCost)
	if at == n+1 {
		t.RawSetInt(at, value)
		return 0
	}
	t.Insert(at, value)
	return 0
}

func (m *machine) tableRemove(l *glua.LState) int {
	t, n := m.list(l)
	at := integer(l, 2, n)
	if n == 0 || at < 1 || at > n {
		l.Push(glua.LNil)
		return 1
	}
	l.Push(t.Remove(at))
	return 1
}

func (m *machine) tableConcat(l *glua.LState) int {
	t, n := m.list(l)
	separator := l.OptString(2, "")
	from, to := integer(l, 3, 1), min(integer(l, 4, n), n)
	var out strings.Builder
	for i := max(from, 1); i <= to; i++ {
		value := t.RawGetInt(i)
		if !glua.LVCanConvToString(value) {
			l.RaiseError("invalid value (%s) at position %d for concat", value.Type().String(), i)
		}
		text := value.String()
		m.budget.alloc(l, len(text)+len(separator))
		out.WriteString(text)
		if i < to {
			out.WriteString(separator)
		}
	}
	return m.push(l, out.String())
}

func (m *machine) tableSort(l *glua.LState) int {
	t, n := m.list(l)
	var by *glua.LFunction
	if l.Get(2) != glua.LNil {
		by = l.CheckFunction(2)
	}
	m.budget.work(l, n*bits.Len(uint(n)))
	m.budget.alloc(l, n*16)
	values := make([]glua.LValue, n)
	for i := range values {
		values[i] = t.RawGetInt(i + 1)
	}
	less := func(i, j int) bool { return l.LessThan(values[i], values[j]) }
	if by != nil {
		less = func(i, j int) bool {
			l.Push(by)
			l.Push(values[i])
			l.Push(values[j])
			l.Call(2, 1)
			result := l.Get(-1)
			l.Pop(1)
			return glua.LVAsBool(result)
		}
	}
	sort.Slice(values, less)
	for i, value := range values {
		t.RawSetInt(i+1, value)
	}
	return 0
}
