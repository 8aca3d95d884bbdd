package objbytes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth is how deeply JSON may be nested: the same as in encoding/json, which API servers use.
const maxDepth = 10000

var (
	// ErrJSON reports input that is not JSON, or not of the expected type.
	ErrJSON  = fmt.Errorf("%w: invalid JSON", ErrMalformed)
	errDepth = fmt.Errorf("%w: nested too deeply", ErrJSON)
)

// Span is a range of bytes.
type Span struct{ Start, End int }

// Of returns the range of b.
func (s Span) Of(b []byte) []byte { return b[s.Start:s.End] }

// Scanner finds the end of a JSON value that may arrive in pieces. It matches brackets and strings and does not check what is between.
type Scanner struct {
	depth    int
	scalar   bool // a number or literal, which ends before the first byte that cannot belong to it
	inString bool
	escaped  bool
	// kinds has a bit for each open bracket, set for that of an object.
	kinds [4]uint64
	deep  []uint64
}

// Scan consumes bytes up to the end of the value. done is false if all of b belongs to the value and more must follow; a scalar may
// also end with the input.
func (s *Scanner) Scan(b []byte) (n int, done bool, err error) {
	for n < len(b) {
		if s.inString {
			closed := s.skipString(b, &n)
			if closed && s.depth == 0 {
				return n, true, nil
			}
			continue
		}
		c := b[n]
		if s.scalar {
			if isScalarByte(c) {
				n++
				continue
			}
			return n, true, nil
		}
		switch c {
		case '"':
			s.inString = true
		case '{', '[':
			if err := s.open(c == '{'); err != nil {
				return n, false, err
			}
		case '}', ']':
			if err := s.close(c == '}'); err != nil {
				return n, false, err
			}
			if s.depth == 0 {
				return n + 1, true, nil
			}
		case ' ', '\t', '\n', '\r':
		default:
			if s.depth == 0 {
				if !isScalarByte(c) {
					return n, false, ErrJSON
				}
				s.scalar = true
			}
		}
		n++
	}
	return n, false, nil
}

// IsScalar reports whether the value is a number or literal.
func (s *Scanner) IsScalar() bool { return s.scalar }

// skipString moves n behind the closing quote, or to the end of b. Most strings are short, so that a loop is faster than a search.
func (s *Scanner) skipString(b []byte, n *int) (closed bool) {
	i := *n
	if s.escaped && i < len(b) {
		s.escaped = false
		i++
	}
	for i < len(b) {
		switch b[i] {
		case '"':
			s.inString = false
			*n = i + 1
			return true
		case '\\':
			i += 2
		default:
			i++
		}
	}
	s.escaped = i > len(b)
	*n = len(b)
	return false
}

func (s *Scanner) word() *uint64 {
	i := s.depth / 64
	if i < len(s.kinds) {
		return &s.kinds[i]
	}
	i -= len(s.kinds)
	if i == len(s.deep) {
		s.deep = append(s.deep, 0)
	}
	return &s.deep[i]
}

func (s *Scanner) open(object bool) error {
	if s.depth >= maxDepth {
		return errDepth
	}
	word, bit := s.word(), uint64(1)<<(s.depth%64)
	*word &^= bit
	if object {
		*word |= bit
	}
	s.depth++
	return nil
}

func (s *Scanner) close(object bool) error {
	if s.depth == 0 {
		return ErrJSON
	}
	s.depth--
	if (*s.word()>>(s.depth%64)&1 == 1) != object {
		return ErrJSON
	}
	return nil
}

func isScalarByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// ValueAt returns the range of the JSON value that begins at i, after any white space.
func ValueAt(b []byte, i int) (Span, error) {
	i = SkipSpace(b, i)
	if i >= len(b) {
		return Span{}, ErrJSON
	}
	var s Scanner
	n, done, err := s.Scan(b[i:])
	if err != nil {
		return Span{}, err
	}
	if !done && !s.scalar {
		return Span{}, ErrJSON
	}
	return Span{i, i + n}, nil
}

// SkipSpace returns the index of the first byte at or behind i that is no white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// Member is a member of a JSON object.
type Member struct {
	Key []byte
	// Whole is the member from the quote of its key to the end of its value.
	Whole, Value Span
	// First and Last tell which of the commas around it exist.
	First, Last bool
}

// EachMember calls visit for the members of the object that begins at i, until it returns an error; ErrStop ends the walk without
// failing it. It returns the end of the object, or of the last member visited and the comma behind it.
func EachMember(b []byte, i int, visit func(Member) error) (end int, err error) {
	i = SkipSpace(b, i)
	if i >= len(b) || b[i] != '{' {
		return i, fmt.Errorf("%w: expected an object", ErrJSON)
	}
	if i = SkipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for first := true; ; first = false {
		quoted, err := ValueAt(b, i)
		if err != nil {
			return i, err
		}
		m := Member{First: first}
		if m.Key, err = String(quoted.Of(b)); err != nil {
			return i, err
		}
		colon := SkipSpace(b, quoted.End)
		if colon >= len(b) || b[colon] != ':' {
			return i, ErrJSON
		}
		if m.Value, err = ValueAt(b, colon+1); err != nil {
			return i, err
		}
		m.Whole = Span{quoted.Start, m.Value.End}
		next := SkipSpace(b, m.Value.End)
		if next >= len(b) || b[next] != ',' && b[next] != '}' {
			return i, ErrJSON
		}
		m.Last = b[next] == '}'
		if err := visit(m); err != nil {
			if errors.Is(err, ErrStop) {
				err = nil
			}
			return next + 1, err
		}
		if m.Last {
			return next + 1, nil
		}
		i = SkipSpace(b, next+1)
	}
}

// EachElement calls visit for the elements of the array that begins at i, until it returns an error; ErrStop ends the walk without
// failing it.
func EachElement(b []byte, i int, visit func(value Span) error) error {
	i = SkipSpace(b, i)
	if i >= len(b) || b[i] != '[' {
		return fmt.Errorf("%w: expected an array", ErrJSON)
	}
	if i = SkipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return nil
	}
	for {
		value, err := ValueAt(b, i)
		if err != nil {
			return err
		}
		if err := visit(value); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
		i = SkipSpace(b, value.End)
		switch {
		case i < len(b) && b[i] == ',':
			i++
		case i < len(b) && b[i] == ']':
			return nil
		default:
			return ErrJSON
		}
	}
}

// FindMember returns the value of the first member of an object with a name; the empty Span if there is none.
func FindMember(b []byte, object Span, name string) (found Span, err error) {
	_, err = EachMember(b[:object.End], object.Start, func(m Member) error {
		if string(m.Key) != name {
			return nil
		}
		found = m.Value
		return ErrStop
	})
	return found, err
}

// String returns the content of a quoted string. It shares the memory of quoted unless the string has escapes or invalid UTF-8.
func String(quoted []byte) ([]byte, error) {
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return nil, fmt.Errorf("%w: expected a string", ErrJSON)
	}
	if content := quoted[1 : len(quoted)-1]; bytes.IndexByte(content, '\\') < 0 && utf8.Valid(content) {
		return content, nil
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return nil, ErrJSON
	}
	return []byte(s), nil
}

// AppendQuoted appends s as a JSON string, encoded as API servers do it.
func AppendQuoted(dst []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // strings always encode
		return append(dst, `""`...)
	}
	return append(dst, quoted...)
}

// IsObject reports whether a JSON value is an object.
func IsObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// IsString reports whether a JSON value is a string.
func IsString(value []byte) bool { return len(value) > 0 && value[0] == '"' }

func isNull(value []byte) bool { return string(value) == "null" }
