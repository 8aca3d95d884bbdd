// Package jsoncut finds the members of objects in JSON without decoding them. It is for what API servers write: of anything else it
// says that it is malformed, or finds members that a decoder would not accept.
package jsoncut

import (
	"bytes"
	"encoding/json"
	"errors"
)

// ErrMalformed is what comes of text that is no JSON.
var ErrMalformed = errors.New("malformed JSON")

// Span is a range of bytes.
type Span struct{ Start, End int }

// Of returns the range of a text.
func (s Span) Of(b []byte) []byte { return b[s.Start:s.End] }

// Member is a member of an object.
type Member struct {
	// Key is what stands between the quotes. It may have escapes.
	Key []byte
	// Whole is the member from the quote of its key to the end of its value.
	Whole, Value Span
	// First and Last tell which of the commas around it there are.
	First, Last bool
}

// Each calls visit for the members of the object that begins at i, until it returns false. It returns the end of the object, or how far
// it has looked.
func Each(b []byte, i int, visit func(Member) bool) (end int, err error) {
	i = SkipSpace(b, i)
	if i >= len(b) || b[i] != '{' {
		return i, ErrMalformed
	}
	if i = SkipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for first := true; ; first = false {
		m := Member{First: first}
		keyEnd := skipValue(b, i)
		if keyEnd < 0 || b[i] != '"' {
			return i, ErrMalformed
		}
		m.Key = b[i+1 : keyEnd-1]
		colon := SkipSpace(b, keyEnd)
		if colon >= len(b) || b[colon] != ':' {
			return i, ErrMalformed
		}
		m.Value.Start = SkipSpace(b, colon+1)
		if m.Value.End = skipValue(b, m.Value.Start); m.Value.End < 0 {
			return i, ErrMalformed
		}
		m.Whole = Span{i, m.Value.End}
		next := SkipSpace(b, m.Value.End)
		if next >= len(b) || b[next] != ',' && b[next] != '}' {
			return i, ErrMalformed
		}
		m.Last = b[next] == '}'
		if !visit(m) || m.Last {
			return next + 1, nil
		}
		i = SkipSpace(b, next+1)
	}
}

// Text returns a string.
func Text(quoted []byte) (string, error) {
	if len(quoted) < 2 || quoted[0] != '"' {
		return "", ErrMalformed
	}
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	var text string
	err := json.Unmarshal(quoted, &text)
	return text, err
}

// SkipSpace returns where the white space that may begin at i ends.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the value that begins at i ends, -1 if it does not. In valid JSON it is enough to count brackets outside of
// strings.
func skipValue(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 || depth == 0 {
				return i
			}
			i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return -1
			}
		default:
			if depth == 0 {
				return skipScalar(b, i)
			}
		}
	}
	return -1
}

// skipString returns where the string that begins at i ends, -1 if it does not.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return -1
}

// skipScalar returns where the number or word that begins at i ends, -1 if there is none.
func skipScalar(b []byte, i int) int {
	start := i
	for i < len(b) && bytes.IndexByte([]byte(",:}] \t\r\n"), b[i]) < 0 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
