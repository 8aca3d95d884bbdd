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
	// separator is between the values of the fields that are kept together.
	separator = "\x00"
)

// fieldPlan says where the value of each field is found: indexed ones by number, distinct ones in the object, and the rest, of which few
// combinations exist, together in one interned string.
type fieldPlan struct {
	fields   []Field
	indexed  []int
	together []int
	distinct []int
}

func planFields(all []Field) (fieldPlan, error) {
	p := fieldPlan{fields: all}
	for i, f := range all {
		switch {
		case len(f.Paths) == 0 || slices.ContainsFunc(f.Paths, func(path []protowire.Number) bool { return len(path) == 0 }):
			return p, fmt.Errorf("the field %s has no path", f.Name)
		case f.Indexed:
			p.indexed = append(p.indexed, i)
		case f.Distinct:
			p.distinct = append(p.distinct, i)
		default:
			p.together = append(p.together, i)
		}
	}
	if len(p.indexed) > maxIndexed {
		return p, fmt.Errorf("%d fields are indexed, at most %d can be", len(p.indexed), maxIndexed)
	}
	return p, nil
}

// index returns the number of a field, or -1.
func (p *fieldPlan) index(name string) int {
	return slices.IndexFunc(p.fields, func(f Field) bool { return f.Name == name })
}

// values reads all fields of an object into values.
func (p *fieldPlan) values(values [][]byte, raw []byte) ([][]byte, error) {
	values = values[:0]
	for i := range p.fields {
		value, err := p.fields[i].value(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.fields[i].Name, err)
		}
		values = append(values, value)
	}
	return values, nil
}

func (f *Field) value(raw []byte) ([]byte, error) {
	for _, path := range f.Paths {
		value, err := wire.Value(raw, path)
		if err != nil {
			return nil, err
		}
		if len(value) == 0 {
			continue
		}
		if f.Type == BoolField {
			return fmt.Append(nil, string(value) != "0"), nil
		}
		return value, nil
	}
	switch f.Type {
	case BoolField:
		return []byte("false"), nil
	case IntField:
		return []byte("0"), nil
	default:
		return nil, nil
	}
}

// join returns what is interned of the fields kept together.
func (p *fieldPlan) join(dst []byte, values [][]byte) ([]byte, error) {
	for _, i := range p.together {
		if bytes.IndexByte(values[i], 0) >= 0 {
			return nil, fmt.Errorf("%s: %.60q is no value", p.fields[i].Name, values[i])
		}
		dst = append(append(dst, values[i]...), separator...)
	}
	return dst, nil
}

// joined returns the ith value of what join returned.
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
