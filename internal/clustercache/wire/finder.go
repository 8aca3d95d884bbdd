package wire

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// Finder finds the values at several paths of field numbers, in one pass over an object.
type Finder struct {
	root  level
	paths int
}

// level has the fields to look for in a message.
type level struct {
	fields []lookedFor
}

// lookedFor is a field: a value, a message with values, or both.
type lookedFor struct {
	number protowire.Number
	paths  []int
	inside *level
}

// NewFinder returns a Finder of paths, none of which is empty.
func NewFinder(paths [][]protowire.Number) *Finder {
	f := &Finder{paths: len(paths)}
	for i, path := range paths {
		at := &f.root
		for depth, number := range path {
			field := at.field(number)
			if depth == len(path)-1 {
				field.paths = append(field.paths, i)
				break
			}
			if field.inside == nil {
				field.inside = &level{}
			}
			at = field.inside
		}
	}
	return f
}

func (l *level) field(number protowire.Number) *lookedFor {
	i := slices.IndexFunc(l.fields, func(f lookedFor) bool { return f.number == number })
	if i < 0 {
		i = len(l.fields)
		l.fields = append(l.fields, lookedFor{number: number})
	}
	return &l.fields[i]
}

// Find returns the value at each path: the bytes of a string, or an integer or boolean in decimal; nil if there is none. It reuses values.
func (f *Finder) Find(values [][]byte, raw []byte) ([][]byte, error) {
	values = slices.Grow(values[:0], f.paths)[:f.paths]
	clear(values)
	return values, f.root.find(values, raw)
}

func (l *level) find(values [][]byte, message []byte) error {
	for len(message) > 0 {
		found, after, err := objbytes.NextField(message)
		if err != nil {
			return err
		}
		message = after
		for i := range l.fields {
			if l.fields[i].number != found.Number {
				continue
			}
			if err := l.fields[i].take(values, &found); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

func (f *lookedFor) take(values [][]byte, found *objbytes.Field) error {
	for _, path := range f.paths {
		if found.Type == protowire.VarintType {
			values[path] = strconv.AppendInt(nil, int64(found.Varint), 10)
		} else {
			values[path] = found.Value
		}
	}
	if f.inside == nil {
		return nil
	}
	if found.Type != protowire.BytesType {
		return fmt.Errorf("%w: field %d is not a message", objbytes.ErrMalformed, found.Number)
	}
	return f.inside.find(values, found.Value)
}
