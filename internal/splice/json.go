package splice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxDepth is how deeply JSON may be nested: the same as in encoding/json, which API servers use.
const maxDepth = 10000

var (
	errJSON  = errors.New("malformed JSON")
	errDepth = errors.New("JSON nested too deeply")
)

// skimmer finds the end of a JSON value that comes in pieces. It matches brackets and strings, and does not look at what is between.
type skimmer struct {
	depth    int
	scalar   bool // a number or literal, which ends with the first byte that cannot belong to it
	inString bool
	escaped  bool
	// kinds has a bit for each open bracket, set if it is an object's.
	kinds [4]uint64
	deep  []uint64
}

// feed consumes bytes up to the end of the value. done is false if all of b belongs to the value and more must follow; for a scalar
// the end of the input is an end too.
func (s *skimmer) feed(b []byte) (n int, done bool, err error) {
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
					return n, false, errJSON
				}
				s.scalar = true
			}
		}
		n++
	}
	return n, false, nil
}

// skipString moves n behind the closing quote, or to the end of b. Most strings are short, so bytes are looked at one by one.
func (s *skimmer) skipString(b []byte, n *int) (closed bool) {
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

func (s *skimmer) word() *uint64 {
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

func (s *skimmer) open(object bool) error {
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

func (s *skimmer) close(object bool) error {
	if s.depth == 0 {
		return errJSON
	}
	s.depth--
	if (*s.word()>>(s.depth%64)&1 == 1) != object {
		return errJSON
	}
	return nil
}

func isScalarByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// span is a range of bytes.
type span struct{ start, end int }

func (s span) of(b []byte) []byte { return b[s.start:s.end] }

// valueAt returns the range of the JSON value that begins at or, after white space, behind i.
func valueAt(b []byte, i int) (span, error) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return span{}, errJSON
	}
	var s skimmer
	n, done, err := s.feed(b[i:])
	if err != nil {
		return span{}, err
	}
	if !done && !s.scalar {
		return span{}, errJSON
	}
	return span{i, i + n}, nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// errStop ends a walk early without failing it.
var errStop = errors.New("stop")

// eachMember calls visit for the members of the object that begins at i, until visit returns errStop.
func eachMember(b []byte, i int, visit func(key []byte, value span) error) error {
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != '{' {
		return fmt.Errorf("%w: an object was expected", errJSON)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return nil
	}
	for {
		quoted, err := valueAt(b, i)
		if err != nil {
			return err
		}
		key, err := stringOf(quoted.of(b))
		if err != nil {
			return err
		}
		i = skipSpace(b, quoted.end)
		if i >= len(b) || b[i] != ':' {
			return errJSON
		}
		value, err := valueAt(b, i+1)
		if err != nil {
			return err
		}
		if err := visit(key, value); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
		i = skipSpace(b, value.end)
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == '}':
			return nil
		default:
			return errJSON
		}
	}
}

// eachElement calls visit for the elements of the array that begins at i, until visit returns errStop.
func eachElement(b []byte, i int, visit func(value span) error) error {
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != '[' {
		return fmt.Errorf("%w: an array was expected", errJSON)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return nil
	}
	for {
		value, err := valueAt(b, i)
		if err != nil {
			return err
		}
		if err := visit(value); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
		i = skipSpace(b, value.end)
		switch {
		case i < len(b) && b[i] == ',':
			i++
		case i < len(b) && b[i] == ']':
			return nil
		default:
			return errJSON
		}
	}
}

// stringOf returns the content of a quoted string. It shares b's memory unless the string has escapes.
func stringOf(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return nil, fmt.Errorf("%w: a string was expected", errJSON)
	}
	if bytes.IndexByte(b, '\\') < 0 {
		return b[1 : len(b)-1], nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, errJSON
	}
	return []byte(s), nil
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // strings always encode
		return append(dst, `""`...)
	}
	return append(dst, b...)
}

func isObject(b []byte) bool { return len(b) > 0 && b[0] == '{' }
func isString(b []byte) bool { return len(b) > 0 && b[0] == '"' }
