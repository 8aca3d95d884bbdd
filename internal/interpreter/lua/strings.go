package lua

import (
	"fmt"
	"math"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

func (m *machine) stringFunctions() map[string]glua.LGFunction {
	return map[string]glua.LGFunction{
		"byte": m.stringByte, "char": m.stringChar, "find": m.stringFind, "format": m.stringFormat,
		"gmatch": m.stringGmatch, "gsub": m.stringGsub, "len": m.stringLen, "lower": m.stringMapped(lower),
		"match": m.stringMatch, "rep": m.stringRep, "reverse": m.stringMapped(reverse), "sub": m.stringSub,
		"upper": m.stringMapped(upper),
	}
}

func (m *machine) push(l *glua.LState, s string) int {
	l.Push(glua.LString(s))
	return 1
}

func (m *machine) stringLen(l *glua.LState) int {
	l.Push(glua.LNumber(len(l.CheckString(1))))
	return 1
}

func (m *machine) stringMapped(f func(string) string) glua.LGFunction {
	return func(l *glua.LState) int {
		s := l.CheckString(1)
		m.budget.alloc(l, len(s))
		return m.push(l, f(s))
	}
}

func reverse(s string) string {
	out := make([]byte, len(s))
	for i := range len(s) {
		out[len(s)-1-i] = s[i]
	}
	return string(out)
}

func lower(s string) string { return mapBytes(s, 'A', 'Z') }

func upper(s string) string { return mapBytes(s, 'a', 'z') }

// mapBytes flips the case of a range of letters: Lua knows bytes only, and text must come out with its length.
func mapBytes(s string, first, last byte) string {
	out := []byte(s)
	for i, c := range out {
		if c >= first && c <= last {
			out[i] = c ^ 0x20
		}
	}
	return string(out)
}

func (m *machine) stringRep(l *glua.LState) int {
	s, n := l.CheckString(1), integer(l, 2, 0)
	if n <= 0 || s == "" {
		return m.push(l, "")
	}
	if n > math.MaxInt32/len(s) {
		m.budget.alloc(l, math.MaxInt32)
	}
	m.budget.alloc(l, n*len(s))
	return m.push(l, strings.Repeat(s, n))
}

func (m *machine) stringSub(l *glua.LState) int {
	s := l.CheckString(1)
	from, to := span(len(s), integer(l, 2, 1), integer(l, 3, -1))
	return m.push(l, s[from:to])
}

// span turns Lua positions, which start at 1 and may count from the end, into a Go range.
func span(length, from, to int) (int, int) {
	if from < 0 {
		from = length + from + 1
	}
	if to < 0 {
		to = length + to + 1
	}
	from, to = max(from, 1), min(to, length)
	if from > to {
		return 0, 0
	}
	return from - 1, to
}

func (m *machine) stringByte(l *glua.LState) int {
	s := l.CheckString(1)
	start := integer(l, 2, 1)
	from, to := span(len(s), start, integer(l, 3, start))
	for i := from; i < to; i++ {
		l.Push(glua.LNumber(s[i]))
	}
	return to - from
}

func (m *machine) stringChar(l *glua.LState) int {
	n := l.GetTop()
	m.budget.alloc(l, n)
	out := make([]byte, n)
	for i := range out {
		c := integer(l, i+1, 0)
		if c < 0 || c > 255 {
			badArgument(l, i+1, "%d is not a byte", c)
		}
		out[i] = byte(c)
	}
	return m.push(l, string(out))
}

// stringFormat follows C's printf within what Lua documents: at most two digits of width and of precision.
func (m *machine) stringFormat(l *glua.LState) int {
	format := l.CheckString(1)
	m.budget.work(l, len(format)/4)
	var out strings.Builder
	arg := 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		if i++; i < len(format) && format[i] == '%' {
			out.WriteByte('%')
			continue
		}
		start := i
		for i < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
			i++
		}
		if i >= len(format) || !plausible(format[start:i]) {
			l.RaiseError("invalid option in format %q", format)
		}
		arg++
		text := m.directive(l, "%"+format[start:i], format[i], arg)
		m.budget.alloc(l, len(text))
		out.WriteString(text)
	}
	m.budget.alloc(l, len(format))
	return m.push(l, out.String())
}

func plausible(flags string) bool {
	width, precision, _ := strings.Cut(strings.TrimLeft(flags, "-+ #0"), ".")
	return len(width) <= 2 && len(precision) <= 2 && !strings.ContainsAny(width+precision, "-+ #.") && len(flags) <= 10
}

func (m *machine) directive(l *glua.LState, spec string, verb byte, arg int) string {
	switch verb {
	case 'd', 'i', 'u':
		return fmt.Sprintf(spec+"d", int64(l.CheckNumber(arg)))
	case 'x', 'X', 'o':
		return fmt.Sprintf(spec+string(verb), int64(l.CheckNumber(arg)))
	case 'c':
		return string([]byte{byte(integer(l, arg, 0))})
	case 'e', 'E', 'f', 'g', 'G':
		return fmt.Sprintf(spec+string(verb), float64(l.CheckNumber(arg)))
	case 's':
		text := m.text(l, l.CheckAny(arg))
		m.budget.alloc(l, len(text))
		return fmt.Sprintf(spec+"s", text)
	case 'q':
		text := l.CheckString(arg)
		m.budget.alloc(l, 4*len(text))
		return quote(text)
	}
	l.RaiseError("invalid option '%%%c' in format", rune(verb))
	return ""
}

func quote(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			out.WriteByte('\\')
			out.WriteByte(c)
		case '\r':
			out.WriteString(`\r`)
		case 0:
			out.WriteString(`\000`)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func (m *machine) stringFind(l *glua.LState) int {
	s, pattern := l.CheckString(1), l.CheckString(2)
	init := startAt(len(s), integer(l, 3, 1))
	if l.ToBool(4) || !strings.ContainsAny(pattern, specials) {
		m.budget.work(l, len(s)/16)
		at := strings.Index(s[init:], pattern)
		if at < 0 {
			l.Push(glua.LNil)
			return 1
		}
		l.Push(glua.LNumber(init + at + 1))
		l.Push(glua.LNumber(init + at + len(pattern)))
		return 2
	}
	ms := m.matcher(l, s, pattern)
	from, to, ok := ms.search(init)
	if !ok {
		l.Push(glua.LNil)
		return 1
	}
	l.Push(glua.LNumber(from + 1))
	l.Push(glua.LNumber(to))
	return 2 + ms.pushCaptures(from, to, false)
}

func (m *machine) stringMatch(l *glua.LState) int {
	s := l.CheckString(1)
	ms := m.matcher(l, s, l.CheckString(2))
	from, to, ok := ms.search(startAt(len(s), integer(l, 3, 1)))
	if !ok {
		l.Push(glua.LNil)
		return 1
	}
	return ms.pushCaptures(from, to, true)
}

func startAt(length, init int) int {
	if init < 0 {
		init = max(length+init+1, 1)
	}
	return min(max(init, 1)-1, length)
}

func (m *machine) stringGmatch(l *glua.LState) int {
	s, pattern := l.CheckString(1), l.CheckString(2)
	next := 0
	l.Push(l.NewFunction(func(l *glua.LState) int {
		if next > len(s) {
			l.Push(glua.LNil)
			return 1
		}
		ms := m.matcher(l, s, pattern)
		ms.anchored = false // in gmatch a caret is an ordinary character, but no script relies on that
		from, to, ok := ms.search(next)
		if !ok {
			next = len(s) + 1
			l.Push(glua.LNil)
			return 1
		}
		if next = to; to == from {
			next++
		}
		return ms.pushCaptures(from, to, true)
	}))
	return 1
}

func (m *machine) stringGsub(l *glua.LState) int {
	s, pattern, replacement := l.CheckString(1), l.CheckString(2), l.Get(3)
	switch replacement.(type) {
	case glua.LString, glua.LNumber, *glua.LTable, *glua.LFunction:
	default:
		badArgument(l, 3, "string, function or table expected, got %s", replacement.Type())
	}
	limit := integer(l, 4, len(s)+1)
	ms := m.matcher(l, s, pattern)
	var out strings.Builder
	at, count := 0, 0
	for count < limit {
		ms.reset()
		end, ok := ms.match(at, 0)
		if ok {
			count++
			text := m.replacement(l, ms, replacement, at, end)
			m.budget.alloc(l, len(text))
			out.WriteString(text)
		}
		if ok && end > at {
			at = end
		} else {
			if at >= len(s) {
				break
			}
			out.WriteByte(s[at])
			at++
		}
		if ms.anchored {
			break
		}
	}
	if at < len(s) {
		out.WriteString(s[at:])
	}
	m.budget.alloc(l, len(s))
	l.Push(glua.LString(out.String()))
	l.Push(glua.LNumber(count))
	return 2
}

func (m *machine) replacement(l *glua.LState, ms *matcher, by glua.LValue, from, to int) string {
	whole := ms.subject[from:to]
	var value glua.LValue
	switch r := by.(type) {
	case *glua.LTable:
		value = r.RawGet(ms.capture(0, from, to))
	case *glua.LFunction:
		l.Push(r)
		l.Call(ms.pushCaptures(from, to, true), 1)
		value = l.Get(-1)
		l.Pop(1)
	default:
		return ms.expand(by.String(), from, to)
	}
	switch v := value.(type) {
	case *glua.LNilType:
		return whole
	case glua.LBool:
		if !bool(v) {
			return whole
		}
	case glua.LString, glua.LNumber:
		return v.String()
	}
	l.RaiseError("invalid replacement value (a %s)", value.Type().String())
	return ""
}
