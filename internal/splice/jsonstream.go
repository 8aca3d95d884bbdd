package splice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/cellplane/cellplane/internal/objbytes"
)

const (
	firstBuffer = 32 << 10
	// keptBuffer is the largest buffer that is kept between the events of a watch.
	keptBuffer = 64 << 10
	// defaultMaxValue bounds one object. By default etcd accepts 1.5 MiB, and JSON is a few times larger than protobuf.
	defaultMaxValue = 32 << 20
)

// ErrTooLarge reports an object above the size limit.
var ErrTooLarge = errors.New("an object is too large")

// jsonStream reads JSON and holds no more than one value.
type jsonStream struct {
	r   io.Reader
	max int
	// hold, if set, is called before the buffer grows.
	hold func(bytes int) error
	// buf[start:end] has been read and not yet consumed.
	buf        []byte
	start, end int
	err        error
}

func newJSONStream(r io.Reader, maxValue int) *jsonStream {
	if maxValue <= 0 {
		maxValue = defaultMaxValue
	}
	return &jsonStream{r: r, max: maxValue, buf: make([]byte, firstBuffer)}
}

// fill reads more. It moves the buffer, so that earlier results are invalid.
func (s *jsonStream) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.start > 0 {
		copy(s.buf, s.buf[s.start:s.end])
		s.end -= s.start
		s.start = 0
	}
	if s.end == len(s.buf) {
		if len(s.buf) >= s.max {
			return ErrTooLarge
		}
		more := min(len(s.buf), s.max-len(s.buf))
		if err := held(s.hold, more); err != nil {
			return err
		}
		s.buf = append(s.buf, make([]byte, more)...)
	}
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// held calls hold, if it is set.
func held(hold func(int) error, bytes int) error {
	if hold == nil || bytes <= 0 {
		return nil
	}
	return hold(bytes)
}

// drop replaces a large buffer by one for what has not been consumed yet, and reports whether the buffer is small now. Earlier results are
// invalid.
func (s *jsonStream) drop() bool {
	unread := s.buf[s.start:s.end]
	switch {
	case len(s.buf) <= keptBuffer:
		return true
	case len(unread) > keptBuffer:
		return false
	}
	s.buf = append(make([]byte, 0, max(len(unread), firstBuffer)), unread...)
	s.start, s.end = 0, len(s.buf)
	s.buf = s.buf[:cap(s.buf)]
	return true
}

// peek returns the next byte that is not white space, without consuming it. White space is bounded like a value.
func (s *jsonStream) peek() (byte, error) {
	for skipped := 0; ; {
		blank := objbytes.SkipSpace(s.buf[s.start:s.end], 0)
		s.start += blank
		if s.start < s.end {
			return s.buf[s.start], nil
		}
		if skipped += blank; skipped > s.max {
			return 0, ErrTooLarge
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
}

// expect consumes the next byte, which has to be c.
func (s *jsonStream) expect(c byte) error {
	got, err := s.peek()
	if err != nil {
		return unexpectedEOF(err)
	}
	if got != c {
		return fmt.Errorf("%w: expected %q, got %q", objbytes.ErrJSON, c, got)
	}
	s.start++
	return nil
}

// value returns the next value, which is valid until the next call.
func (s *jsonStream) value() ([]byte, error) {
	if _, err := s.peek(); err != nil {
		return nil, err
	}
	var skim objbytes.Scanner
	length := 0
	for {
		n, done, err := skim.Scan(s.buf[s.start+length : s.end])
		length += n
		if err != nil {
			return nil, err
		}
		if !done {
			err = s.fill()
			if err == nil {
				continue
			}
			if !skim.IsScalar() || !errors.Is(err, io.EOF) {
				return nil, unexpectedEOF(err)
			}
		}
		value := s.buf[s.start : s.start+length : s.start+length]
		s.start += length
		return value, nil
	}
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// jsonList reads a list, or a Table, object by object.
type jsonList struct {
	*jsonStream
	array string // the member with the objects: "items" or "rows"
	state listState
	first bool
	seen  bool // the array has been read

	kind, apiVersion, columns []byte
	meta                      listMeta
}

type listState int

const (
	beforeList listState = iota
	inList
	inArray
	afterList
)

// listMeta is a list's metadata.
type listMeta struct {
	version   string
	token     string
	remaining int64 // −1 if unknown
}

func newJSONList(r io.Reader, array string, maxValue int) *jsonList {
	return &jsonList{jsonStream: newJSONStream(r, maxValue), array: array, meta: listMeta{remaining: -1}}
}

// next returns the next object of the array, or io.EOF after the whole list. The object is valid until the next call.
func (l *jsonList) next() ([]byte, error) {
	object, err := l.step()
	if errors.Is(err, io.EOF) && l.state == afterList {
		return nil, io.EOF
	}
	return object, unexpectedEOF(err)
}

func (l *jsonList) step() ([]byte, error) {
	for {
		switch l.state {
		case beforeList:
			if err := l.expect('{'); err != nil {
				return nil, err
			}
			l.state, l.first = inList, true
		case inList:
			if err := l.member(); err != nil {
				return nil, err
			}
		case inArray:
			more, err := l.another(']')
			if err != nil {
				return nil, err
			}
			if more {
				return l.value()
			}
			l.state, l.first = inList, false
		case afterList:
			return nil, io.EOF
		}
	}
}

// another consumes the comma before the next member or element, or the closing bracket.
func (l *jsonList) another(closing byte) (bool, error) {
	c, err := l.peek()
	if err != nil {
		return false, err
	}
	if c == closing {
		l.start++
		return false, nil
	}
	if !l.first {
		if err := l.expect(','); err != nil {
			return false, err
		}
	}
	l.first = false
	return true, nil
}

// member reads one member of the list, or enters the array of objects.
func (l *jsonList) member() error {
	more, err := l.another('}')
	if err != nil {
		return err
	}
	if !more {
		l.state = afterList
		if !l.seen {
			return fmt.Errorf("%w: the list has no %s", objbytes.ErrJSON, l.array)
		}
		return l.onlySpaceLeft()
	}
	quotedKey, err := l.value()
	if err != nil {
		return err
	}
	keyBytes, err := objbytes.String(quotedKey)
	if err != nil {
		return err
	}
	key := string(keyBytes)
	if err := l.expect(':'); err != nil {
		return err
	}
	if key == l.array {
		return l.enterArray()
	}
	value, err := l.value()
	if err != nil {
		return err
	}
	switch key {
	case "kind":
		l.kind = bytes.Clone(value)
	case "apiVersion":
		l.apiVersion = bytes.Clone(value)
	case "columnDefinitions":
		l.columns = bytes.Clone(value)
	case "metadata":
		return l.meta.parse(value)
	}
	return nil
}

func (l *jsonList) enterArray() error {
	if l.seen {
		return fmt.Errorf("%w: the list has %s twice", objbytes.ErrJSON, l.array)
	}
	l.seen = true
	c, err := l.peek()
	if err != nil {
		return err
	}
	if c == '[' {
		l.start++
		l.state, l.first = inArray, true
		return nil
	}
	value, err := l.value()
	if err != nil {
		return err
	}
	if string(value) != "null" {
		return fmt.Errorf("%w: %s is not an array", objbytes.ErrJSON, l.array)
	}
	return nil
}

func (l *jsonList) onlySpaceLeft() error {
	_, err := l.peek()
	switch {
	case err == nil:
		return fmt.Errorf("%w: unexpected data after the list", objbytes.ErrJSON)
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

func (m *listMeta) parse(b []byte) error {
	return eachMember(b, 0, func(key []byte, value span) error {
		raw := value.Of(b)
		switch string(key) {
		case "resourceVersion":
			s, err := objbytes.String(raw)
			m.version = string(s)
			return err
		case "continue":
			s, err := objbytes.String(raw)
			m.token = string(s)
			return err
		case "remainingItemCount":
			if string(raw) == "null" {
				return nil
			}
			n, err := strconv.ParseInt(string(raw), 10, 64)
			if err != nil || n < 0 {
				return fmt.Errorf("%w: remainingItemCount is not a count", objbytes.ErrJSON)
			}
			m.remaining = n
		}
		return nil
	})
}
