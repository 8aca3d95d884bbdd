package clustercache

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cellplane/cellplane/internal/clustercache/wire"
)

const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
	// separator separates the values of the fields that are stored together.
	separator = "\x00"
)

// fieldPlan has the place of each field's value: indexed fields are numbers, distinct ones are read from the object, and the rest, of
// which few combinations exist, are together in one interned string.
type fieldPlan struct {
	fields   []Field
	indexed  []int
	together []int
	distinct []int
	// finder finds the values of all paths of all fields, one after the other.
	finder *wire.Finder
}

func planFields(all []Field) (fieldPlan, error) {
	p := fieldPlan{fields: all}
	var paths [][]protowire.Number
	for i, f := range all {
		paths = append(paths, f.Paths...)
		switch {
		case len(f.Paths) == 0 || slices.ContainsFunc(f.Paths, func(path []protowire.Number) bool { return len(path) == 0 }):
			return p, fmt.Errorf("field %s has no path", f.Name)
		case f.Indexed:
			p.indexed = append(p.indexed, i)
		case f.Distinct:
			p.distinct = append(p.distinct, i)
		default:
			p.together = append(p.together, i)
		}
	}
	if len(p.indexed) > maxIndexed {
		return p, fmt.Errorf("%d fields are indexed, but at most %d can be", len(p.indexed), maxIndexed)
	}
	p.finder = wire.NewFinder(paths)
	return p, nil
}

// index returns the number of a field, or -1.
func (p *fieldPlan) index(name string) int {
	return slices.IndexFunc(p.fields, func(f Field) bool { return f.Name == name })
}

// values reads all fields of an object. Both results reuse the memory of the arguments.
func (p *fieldPlan) values(values, found [][]byte, raw []byte) (_, _ [][]byte, err error) {
	if found, err = p.finder.Find(found, raw); err != nil {
		return nil, nil, err
	}
	values = values[:0]
	at := 0
	for i := range p.fields {
		f := &p.fields[i]
		values = append(values, f.choose(found[at:at+len(f.Paths)]))
		at += len(f.Paths)
	}
	return values, found, nil
}

// choose returns the first value that is not empty, or the default.
func (f *Field) choose(found [][]byte) []byte {
	for _, value := range found {
		switch {
		case len(value) == 0:
		case f.Type == BoolField && string(value) == "0":
			return []byte("false")
		case f.Type == BoolField:
			return []byte("true")
		default:
			return value
		}
	}
	switch f.Type {
	case BoolField:
		return []byte("false")
	case IntField:
		return []byte("0")
	default:
		return nil
	}
}

// join returns the interned string of the fields stored together.
func (p *fieldPlan) join(dst []byte, values [][]byte) ([]byte, error) {
	for _, i := range p.together {
		if bytes.IndexByte(values[i], 0) >= 0 {
			return nil, fmt.Errorf("%s: %.60q is not a valid value", p.fields[i].Name, values[i])
		}
		dst = append(append(dst, values[i]...), separator...)
	}
	return dst, nil
}

// joined returns the ith value of a joined string.
func joined(together []byte, i int) []byte {
	for ; i > 0; i-- {
		_, together, _ = bytes.Cut(together, []byte(separator))
	}
	value, _, _ := bytes.Cut(together, []byte(separator))
	return value
}

// cutLabel returns the key and value of an interned label.
func cutLabel(pair []byte) (key, value string) {
	key, value, _ = strings.Cut(string(pair), separator)
	return key, value
}
