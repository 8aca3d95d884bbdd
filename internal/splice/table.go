package splice

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/cellplane/cellplane/internal/objbytes"
)

var errNoObject = errors.New("a row has no object; the request to the API server needs includeObject=Metadata")

// TableOptions configure a merge of Tables.
type TableOptions struct {
	ListOptions
	// OmitObjects leaves the objects out of the rows, for clients that request includeObject=None. Requests to the API servers still
	// need includeObject=Metadata: without objects, rows have no keys.
	OmitObjects bool
}

// MergeTables merges several Tables into one, as MergeJSON does with lists. The columns are those of the first. If an API server of
// another release has other columns, its cells are assigned by column name.
func MergeTables(w io.Writer, tables []io.Reader, options TableOptions) (Page, error) {
	sources := make([]source, len(tables))
	heads := make([]*jsonList, len(tables))
	for i, r := range tables {
		heads[i] = newJSONList(r, "rows", options.MaxObject)
		sources[i] = rowList{heads[i]}
	}
	m, err := newMerger(sources, options.ListOptions)
	if err != nil {
		return Page{}, err
	}
	columns, err := newColumns(heads)
	if err != nil {
		return Page{}, err
	}
	out := newJSONWriter(w, options.Begin, heads)
	out.head()
	out.member("columnDefinitions")
	_, _ = out.Write(columns.definitions)
	out.open("rows")
	var stamp stamper
	err = m.each(func(item *Item) error {
		raw, err := item.raw, error(nil)
		if !options.OmitObjects {
			raw, err = stamp.row(item, options.Version)
		}
		row := raw
		if err == nil {
			row, err = columns.row(raw, item.Source, options.OmitObjects)
		}
		if err != nil {
			return &SourceError{Source: item.Source, Err: err}
		}
		return out.element(row)
	}, nil)
	if err != nil {
		return Page{}, err
	}
	return out.finish(m)
}

// rowList reads a Table's rows.
type rowList struct{ *jsonList }

func (l rowList) meta() listMeta { return l.jsonList.meta }

func (l rowList) next(item *Item) (err error) {
	item.raw, err = l.jsonList.next()
	if err != nil {
		return err
	}
	item.parse = parseRow
	object, err := rowObject(item.raw)
	if err != nil {
		return err
	}
	item.key, err = appendJSONKey(item.key[:0], object.Of(item.raw))
	return err
}

func rowObject(row []byte) (span, error) {
	object, err := objbytes.FindMember(row, span{Start: 0, End: len(row)}, "object")
	if err == nil && !objbytes.IsObject(object.Of(row)) {
		err = errNoObject
	}
	return object, err
}

func parseRow(item *Item) (Object, error) {
	at, err := rowObject(item.raw)
	if err != nil {
		return Object{}, err
	}
	metadata, err := objbytes.FindMember(item.raw, at, "metadata")
	if err != nil {
		return Object{}, err
	}
	object, _, err := parseJSONMetadata(item.raw, metadata)
	return object, err
}

// columns converts the rows of all sources to the columns of the first.
type columns struct {
	definitions []byte
	// places has, for a source with other columns, the index of each column's cell in its rows; −1 if there is none. It is nil for a
	// source with the same columns.
	places  [][]int
	scratch []byte
}

func newColumns(tables []*jsonList) (*columns, error) {
	c := &columns{places: make([][]int, len(tables))}
	var names []string
	for i, table := range tables {
		if table.columns == nil {
			return nil, &SourceError{Source: i, Err: errors.New("the Table has no columns before its rows")}
		}
		if c.definitions == nil {
			c.definitions = table.columns
		}
		own, err := columnNames(table.columns)
		if err != nil {
			return nil, &SourceError{Source: i, Err: err}
		}
		if i == 0 {
			names = own
			continue
		}
		if !bytes.Equal(c.definitions, table.columns) {
			c.places[i] = placesOf(names, own)
		}
	}
	return c, nil
}

func columnNames(definitions []byte) ([]string, error) {
	var names []string
	err := objbytes.EachElement(definitions, 0, func(value span) error {
		at, err := objbytes.FindMember(definitions, value, "name")
		if err != nil {
			return err
		}
		name, err := objbytes.String(at.Of(definitions))
		names = append(names, string(name))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading columnDefinitions: %w", err)
	}
	return names, nil
}

func placesOf(wanted, own []string) []int {
	at := make(map[string]int, len(own))
	for i, name := range own {
		at[name] = i
	}
	result := make([]int, len(wanted))
	for i, name := range wanted {
		place, found := at[name]
		if !found {
			place = -1
		}
		result[i] = place
	}
	return result
}

// row returns the row to write. It is valid until the next call.
func (c *columns) row(raw []byte, source int, omitObject bool) ([]byte, error) {
	if c.places[source] == nil && !omitObject {
		return raw, nil
	}
	out := append(c.scratch[:0], '{') //nolint:gocritic // scratch is replaced by the grown slice below
	err := eachMember(raw, 0, func(key []byte, value span) error {
		content := value.Of(raw)
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(objbytes.AppendQuoted(out, string(key)), ':')
		switch {
		case string(key) == "object" && omitObject:
			out = append(out, "null"...)
		case string(key) == "cells" && c.places[source] != nil:
			var err error
			out, err = appendCells(out, content, c.places[source])
			return err
		default:
			out = append(out, content...)
		}
		return nil
	})
	out = append(out, '}')
	c.scratch = out
	return out, err
}

func appendCells(out, cells []byte, places []int) ([]byte, error) {
	var values []span
	if err := objbytes.EachElement(cells, 0, func(value span) error {
		values = append(values, value)
		return nil
	}); err != nil {
		return out, fmt.Errorf("reading a row's cells: %w", err)
	}
	out = append(out, '[')
	for i, place := range places {
		if i > 0 {
			out = append(out, ',')
		}
		if place < 0 || place >= len(values) {
			out = append(out, "null"...)
			continue
		}
		out = append(out, values[place].Of(cells)...)
	}
	return append(out, ']'), nil
}
