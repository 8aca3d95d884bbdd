package lua

import (
	"strings"

	glua "github.com/yuin/gopher-lua"
)

// matcher matches Lua patterns. It exists because backtracking can take a time exponential in the pattern, inside
// what is one instruction for the machine: this one pays for each of its steps.
type matcher struct {
	l        *glua.LState
	budget   *budget
	subject  string
	pattern  string
	anchored bool
	level    int
	captures [maxCaptures]struct{ start, length int }
	depth    int
}

const (
	maxCaptures     = 32
	maxPatternDepth = 200
	openCapture     = -1
	positionCapture = -2
	specials        = "^$*+?.([%-"
)

func (m *machine) matcher(l *glua.LState, subject, pattern string) *matcher {
	ms := &matcher{l: l, budget: m.budget, subject: subject, pattern: pattern}
	if strings.HasPrefix(pattern, "^") {
		ms.anchored, ms.pattern = true, pattern[1:]
	}
	return ms
}

func (ms *matcher) reset() { ms.level, ms.depth = 0, 0 }

// search returns the first match at or after a position.
func (ms *matcher) search(init int) (from, to int, ok bool) {
	for at := init; at <= len(ms.subject); at++ {
		ms.reset()
		if end, ok := ms.match(at, 0); ok {
			return at, end, true
		}
		if ms.anchored {
			break
		}
	}
	return 0, 0, false
}

// match matches the pattern from p against the subject from s and returns where the match ends.
func (ms *matcher) match(s, p int) (int, bool) {
	if ms.depth++; ms.depth > maxPatternDepth {
		ms.l.RaiseError("the pattern is too complex")
	}
	defer func() { ms.depth-- }()
	for {
		ms.budget.work(ms.l, 1)
		if p == len(ms.pattern) {
			return s, true
		}
		switch c := ms.pattern[p]; {
		case c == '(':
			if strings.HasPrefix(ms.pattern[p+1:], ")") {
				return ms.open(s, p+2, positionCapture)
			}
			return ms.open(s, p+1, openCapture)
		case c == ')':
			return ms.close(s, p+1)
		case c == '$' && p+1 == len(ms.pattern):
			return s, s == len(ms.subject)
		case c == '%' && p+1 < len(ms.pattern) && ms.pattern[p+1] == 'b':
			end, ok := ms.balanced(s, p+2)
			if !ok {
				return 0, false
			}
			s, p = end, p+4
			continue
		case c == '%' && p+1 < len(ms.pattern) && ms.pattern[p+1] == 'f':
			next, ok := ms.frontier(s, p+2)
			if !ok {
				return 0, false
			}
			p = next
			continue
		case c == '%' && p+1 < len(ms.pattern) && isDigit(ms.pattern[p+1]):
			end, ok := ms.again(s, ms.pattern[p+1])
			if !ok {
				return 0, false
			}
			s, p = end, p+2
			continue
		}
		end := ms.classEnd(p)
		suffix := byte(0)
		if end < len(ms.pattern) {
			suffix = ms.pattern[end]
		}
		switch suffix {
		case '?':
			if ms.one(s, p, end) {
				if to, ok := ms.match(s+1, end+1); ok {
					return to, true
				}
			}
			p = end + 1
		case '*':
			return ms.greedy(s, p, end, 0)
		case '+':
			return ms.greedy(s, p, end, 1)
		case '-':
			return ms.lazy(s, p, end)
		default:
			if !ms.one(s, p, end) {
				return 0, false
			}
			s, p = s+1, end
		}
	}
}

func (ms *matcher) greedy(s, p, end, least int) (int, bool) {
	n := 0
	for ms.one(s+n, p, end) {
		ms.budget.work(ms.l, 1)
		n++
	}
	for ; n >= least; n-- {
		if to, ok := ms.match(s+n, end+1); ok {
			return to, true
		}
	}
	return 0, false
}

func (ms *matcher) lazy(s, p, end int) (int, bool) {
	for {
		if to, ok := ms.match(s, end+1); ok {
			return to, true
		}
		if !ms.one(s, p, end) {
			return 0, false
		}
		s++
	}
}

func (ms *matcher) open(s, p, kind int) (int, bool) {
	if ms.level >= maxCaptures {
		ms.l.RaiseError("too many captures")
	}
	ms.captures[ms.level].start, ms.captures[ms.level].length = s, kind
	ms.level++
	to, ok := ms.match(s, p)
	if !ok {
		ms.level--
	}
	return to, ok
}

func (ms *matcher) close(s, p int) (int, bool) {
	for i := ms.level - 1; i >= 0; i-- {
		if ms.captures[i].length != openCapture {
			continue
		}
		ms.captures[i].length = s - ms.captures[i].start
		to, ok := ms.match(s, p)
		if !ok {
			ms.captures[i].length = openCapture
		}
		return to, ok
	}
	ms.l.RaiseError("invalid pattern capture")
	return 0, false
}

func (ms *matcher) balanced(s, p int) (int, bool) {
	if p+1 >= len(ms.pattern) {
		ms.l.RaiseError("unbalanced pattern: %%b needs two characters")
	}
	first, last := ms.pattern[p], ms.pattern[p+1]
	if s >= len(ms.subject) || ms.subject[s] != first {
		return 0, false
	}
	for i, open := s+1, 1; i < len(ms.subject); i++ {
		ms.budget.work(ms.l, 1)
		switch ms.subject[i] {
		case last:
			if open--; open == 0 {
				return i + 1, true
			}
		case first:
			open++
		}
	}
	return 0, false
}

func (ms *matcher) frontier(s, p int) (int, bool) {
	if p >= len(ms.pattern) || ms.pattern[p] != '[' {
		ms.l.RaiseError("missing '[' after '%%f' in pattern")
	}
	end := ms.classEnd(p)
	before, after := byte(0), byte(0)
	if s > 0 {
		before = ms.subject[s-1]
	}
	if s < len(ms.subject) {
		after = ms.subject[s]
	}
	return end, !ms.inSet(before, p, end-1) && ms.inSet(after, p, end-1)
}

func (ms *matcher) again(s int, digit byte) (int, bool) {
	i := int(digit - '1')
	if i < 0 || i >= ms.level || ms.captures[i].length < 0 {
		ms.l.RaiseError("invalid capture index %%%c", rune(digit))
	}
	text := ms.subject[ms.captures[i].start : ms.captures[i].start+ms.captures[i].length]
	ms.budget.work(ms.l, 1+len(text)/16)
	return s + len(text), strings.HasPrefix(ms.subject[s:], text)
}

// classEnd returns the end of the single-character class that begins at p.
func (ms *matcher) classEnd(p int) int {
	c := ms.pattern[p]
	p++
	switch c {
	case '%':
		if p >= len(ms.pattern) {
			ms.l.RaiseError("malformed pattern (ends with '%%')")
		}
		return p + 1
	case '[':
		if p < len(ms.pattern) && ms.pattern[p] == '^' {
			p++
		}
		for first := true; first || p >= len(ms.pattern) || ms.pattern[p] != ']'; first = false {
			if p >= len(ms.pattern) {
				ms.l.RaiseError("malformed pattern (missing ']')")
			}
			if p++; ms.pattern[p-1] == '%' {
				p++
			}
		}
		return p + 1
	}
	return p
}

// one reports whether the class from p to end matches the character at s.
func (ms *matcher) one(s, p, end int) bool {
	if s >= len(ms.subject) {
		return false
	}
	c := ms.subject[s]
	switch ms.pattern[p] {
	case '.':
		return true
	case '%':
		return inClass(c, ms.pattern[p+1])
	case '[':
		return ms.inSet(c, p, end-1)
	}
	return ms.pattern[p] == c
}

// inSet reports whether c is in the set whose brackets are at p and at last.
func (ms *matcher) inSet(c byte, p, last int) bool {
	ms.budget.work(ms.l, (last-p)/16)
	found := true
	if p++; ms.pattern[p] == '^' {
		found = false
		p++
	}
	for p < last {
		switch {
		case ms.pattern[p] == '%' && p+1 < last:
			if inClass(c, ms.pattern[p+1]) {
				return found
			}
			p += 2
		case p+2 < last && ms.pattern[p+1] == '-':
			if ms.pattern[p] <= c && c <= ms.pattern[p+2] {
				return found
			}
			p += 3
		default:
			if ms.pattern[p] == c {
				return found
			}
			p++
		}
	}
	return !found
}

func inClass(c, class byte) bool {
	var in bool
	switch class | 0x20 {
	case 'a':
		in = isLetter(c)
	case 'c':
		in = c < 0x20 || c == 0x7f
	case 'd':
		in = isDigit(c)
	case 'l':
		in = c >= 'a' && c <= 'z'
	case 'p':
		in = c > 0x20 && c < 0x7f && !isLetter(c) && !isDigit(c)
	case 's':
		in = c == ' ' || c >= '\t' && c <= '\r'
	case 'u':
		in = c >= 'A' && c <= 'Z'
	case 'w':
		in = isLetter(c) || isDigit(c)
	case 'x':
		in = isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f'
	case 'z':
		in = c == 0
	default:
		return class == c
	}
	if !isLetter(class) {
		return class == c
	}
	return in == (class >= 'a')
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// capture returns a capture, or the whole match if there is none.
func (ms *matcher) capture(i, from, to int) glua.LValue {
	if i >= ms.level {
		if i > 0 {
			ms.l.RaiseError("invalid capture index %%%d", i+1)
		}
		return glua.LString(ms.subject[from:to])
	}
	c := ms.captures[i]
	switch c.length {
	case positionCapture:
		return glua.LNumber(c.start + 1)
	case openCapture:
		ms.l.RaiseError("unfinished capture")
	}
	return glua.LString(ms.subject[c.start : c.start+c.length])
}

func (ms *matcher) pushCaptures(from, to int, wholeIfNone bool) int {
	n := ms.level
	if n == 0 && wholeIfNone {
		n = 1
	}
	for i := range n {
		ms.l.Push(ms.capture(i, from, to))
	}
	return n
}

// expand replaces %0 to %9 in a replacement. It stops as soon as the budget is spent, not after building the text.
func (ms *matcher) expand(replacement string, from, to int) string {
	if strings.IndexByte(replacement, '%') < 0 {
		return replacement
	}
	var out strings.Builder
	for i := 0; i < len(replacement); i++ {
		c := replacement[i]
		if c != '%' {
			out.WriteByte(c)
			continue
		}
		if i++; i >= len(replacement) {
			ms.l.RaiseError("malformed replacement (ends with '%%')")
		}
		var text string
		switch d := replacement[i]; {
		case d == '0':
			text = ms.subject[from:to]
		case isDigit(d):
			text = ms.capture(int(d-'1'), from, to).String()
		default:
			text = string([]byte{d})
		}
		ms.budget.alloc(ms.l, len(text))
		out.WriteString(text)
	}
	return out.String()
}
