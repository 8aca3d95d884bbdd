package splice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ListOptions say how lists are merged.
type ListOptions struct {
	// Limit is the highest number of objects in the merged list; 0 means no limit. Every API server must have been asked with at
	// least the same limit.
	Limit int
	// Choose decides which of the objects of one key, from different sources, the list shows; −1 means none. It is called for every
	// key, also with a single candidate, which a move between cells may have left behind. The candidates are good for the duration
	// of the call. It may be nil if no object is in two lists; one that is makes the merge fail then.
	Choose func(candidates []*Item) int
	// Opened, if set, is called before Choose with the sources' list resourceVersions.
	Opened func(versions []string)
	// Finish returns the merged list's metadata. It is called once, when it is known where the list ends: without Limit and Choose
	// that can be before its objects have been read, with nothing but Versions and Drained set.
	Finish func(Page) (Metadata, error)
	// Begin, if set, is called before the first byte is written: until then a failure can still be answered with a status.
	Begin func()
	// MaxObject bounds the size of an object in bytes; 0 means 32 MiB.
	MaxObject int
}

// Item is one object of a list.
type Item struct {
	// Source is the index of the list it is from.
	Source int

	key   []byte
	raw   []byte // as it is written
	parse func(*Item) (Object, error)
}

// Key returns the object's key.
func (i *Item) Key() string { return string(i.key) }

// Object reads the object's identity and labels.
func (i *Item) Object() (Object, error) { return i.parse(i) }

// Page is what a merged list shows of its sources.
type Page struct {
	// Versions are the sources' list resourceVersions.
	Versions []string
	// Items is the number of objects shown.
	Items int
	// More is set if there is something behind Last.
	More bool
	// Last is the key of the last object that was looked at, shown or not. A following page has to begin behind it; or where this
	// one began, if nothing was looked at and it is empty.
	Last string
	// Drained are the sources, by index in ascending order, that have nothing behind Last.
	Drained []int
	// Remaining is the number of objects behind Last, or −1 if a source did not tell.
	Remaining int64
}

// Metadata is a list's metadata.
type Metadata struct {
	// ResourceVersion is what the list shows.
	ResourceVersion string
	// Continue is the token of the next page, or "".
	Continue string
	// Remaining is the number of objects on further pages; below 0 it is left out.
	Remaining int64
}

// SourceError is a failure of one of the merged lists.
type SourceError struct {
	// Source is the index of the list.
	Source int
	// Err says what is wrong.
	Err error
}

// Error implements error.
func (e *SourceError) Error() string { return fmt.Sprintf("list number %d: %v", e.Source, e.Err) }

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// source is a list to merge.
type source interface {
	// next moves to the next object, or returns io.EOF after the last one, when meta is complete. The item is good until the
	// next call.
	next(*Item) error
	meta() listMeta
}

// merger walks over several lists in key order.
type merger struct {
	options ListOptions
	cursors []cursor
	last    []byte
	items   int
	same    []*Item
}

type cursor struct {
	source
	item Item
	prev []byte
	done bool
	// unread counts the objects behind the end of the page.
	unread int64
}

// newMerger reads each source's first object.
func newMerger(sources []source, options ListOptions) (*merger, error) {
	if len(sources) == 0 {
		return nil, errors.New("merging lists: there are none")
	}
	m := &merger{options: options, cursors: make([]cursor, len(sources))}
	for i, source := range sources {
		m.cursors[i] = cursor{source: source, item: Item{Source: i}}
		if err := m.advance(i); err != nil {
			return nil, err
		}
	}
	if options.Opened != nil {
		versions := make([]string, len(sources))
		for i, source := range sources {
			versions[i] = source.meta().version
		}
		options.Opened(versions)
	}
	return m, nil
}

func (m *merger) advance(i int) error {
	c := &m.cursors[i]
	c.prev = append(c.prev[:0], c.item.key...)
	err := c.next(&c.item)
	if errors.Is(err, io.EOF) {
		c.done = true
		return nil
	}
	if err == nil && bytes.Compare(c.item.key, c.prev) <= 0 {
		err = fmt.Errorf("%q comes after %q, so the list is not in key order", c.item.key, c.prev)
	}
	if err != nil {
		return &SourceError{Source: i, Err: err}
	}
	return nil
}

// each calls show for every object of the merged list, in order.
func (m *merger) each(show func(*Item) error) error {
	for !m.atEnd() {
		candidates := m.lowest()
		if len(candidates) == 0 {
			return nil
		}
		chosen, err := m.choose(candidates)
		if err != nil {
			return err
		}
		if chosen >= 0 {
			if err := show(candidates[chosen]); err != nil {
				return err
			}
			m.items++
		}
		m.last = append(m.last[:0], candidates[0].key...)
		for _, item := range candidates {
			if err := m.advance(item.Source); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *merger) choose(candidates []*Item) (int, error) {
	if m.options.Choose != nil {
		return m.options.Choose(candidates), nil
	}
	if len(candidates) > 1 {
		return 0, &SourceError{Source: candidates[1].Source, Err: fmt.Errorf("%q is in list number %d too", candidates[1].key, candidates[0].Source)}
	}
	return 0, nil
}

// atEnd reports whether the page has to end here: it is full, or a source's own page is at its end, and what that source has further
// on could come before all the rest.
func (m *merger) atEnd() bool {
	if m.options.Limit > 0 && m.items >= m.options.Limit {
		return true
	}
	for i := range m.cursors {
		if c := &m.cursors[i]; c.done && c.meta().token != "" {
			return true
		}
	}
	return false
}

// lowest returns the current objects of the lowest key; none if all lists are at their end.
func (m *merger) lowest() []*Item {
	m.same = m.same[:0]
	for i := range m.cursors {
		c := &m.cursors[i]
		if c.done {
			continue
		}
		order := -1
		if len(m.same) > 0 {
			order = bytes.Compare(c.item.key, m.same[0].key)
		}
		if order < 0 {
			m.same = m.same[:0]
		}
		if order <= 0 {
			m.same = append(m.same, &c.item)
		}
	}
	return m.same
}

// finish reads the sources to their ends and returns the merged list's metadata.
func (m *merger) finish() (Page, Metadata, error) {
	page := Page{Versions: make([]string, len(m.cursors)), Items: m.items, Last: string(m.last)}
	for i := range m.cursors {
		c := &m.cursors[i]
		for !c.done {
			c.unread++
			if err := m.advance(i); err != nil {
				return page, Metadata{}, err
			}
		}
		meta := c.meta()
		page.Versions[i] = meta.version
		switch {
		case c.unread == 0 && meta.token == "":
			page.Drained = append(page.Drained, i)
			continue
		case meta.token != "" && meta.remaining < 0:
			page.Remaining = -1
		case page.Remaining >= 0:
			page.Remaining += c.unread + max(meta.remaining, 0)
		}
		page.More = true
	}
	metadata, err := m.options.Finish(page)
	return page, metadata, err
}
