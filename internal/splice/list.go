package splice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ListOptions configure a merge of lists.
type ListOptions struct {
	// Limit is the highest number of objects in the merged list; 0 means no limit. Every API server must have been asked with at
	// least the same limit.
	Limit int
	// Choose returns the index of the object to show of those with one key, from different sources; −1 means none. It is called for
	// every key, also with a single candidate, which may be a stale copy of a move between cells. The candidates are valid during the
	// call. If it is nil, an object in two lists makes the merge fail.
	Choose func(candidates []*Item) int
	// Opened, if set, is called before Choose, with the resourceVersions of the lists.
	Opened func(versions []string)
	// Finish returns the merged list's metadata. It is called once, when the end of the list is known. Without Limit that may be before its
	// objects have been read, with only Versions and Drained set.
	Finish func(Page) (Metadata, error)
	// Begin, if set, is called before the first byte is written. Until then a failure can be answered with a Status.
	Begin func()
	// MaxObject bounds the size of an object in bytes; 0 means 32 MiB.
	MaxObject int
	// MaxPage ends a page in protobuf before its Limit when its objects have this size in bytes; 0 means 4 MiB. Such a page has to be held
	// in memory, because its length precedes it.
	MaxPage int
	// Version, if set, returns the resourceVersion to show an object with; it is given that of its API server. It has at most 19 digits.
	Version func(item *Item, revision string) string
	// Hold, if set, is called before the merge holds more memory than a small buffer per list, with the number of additional bytes. It may
	// wait. The bytes are held until the merge returns.
	Hold func(bytes int) error
}

// defaultMaxPage is the default of MaxPage: some thousands of ordinary objects.
const defaultMaxPage = 4 << 20

// Item is one object of a list.
type Item struct {
	// Source is the index of its list.
	Source int

	key   []byte
	raw   []byte // as it is written
	parse func(*Item) (Object, error)
}

// Key returns the object's key.
func (i *Item) Key() string { return string(i.key) }

// Object reads the object's identity and labels.
func (i *Item) Object() (Object, error) { return i.parse(i) }

// Page describes a page of a merged list.
type Page struct {
	// Versions are the resourceVersions of the lists.
	Versions []string
	// Items is the number of objects shown.
	Items int
	// More is set if there are objects after Last.
	More bool
	// Last is the key of the last object that was read, shown or not. The next page starts after it. If it is empty, nothing was read
	// and the next page starts where this one did.
	Last string
	// Drained are the indexes of the sources, ascending, that have nothing after Last.
	Drained []int
	// Remaining is the number of objects after Last, or −1 if it is unknown.
	Remaining int64
}

// Metadata is a list's metadata.
type Metadata struct {
	// ResourceVersion is the position of the list.
	ResourceVersion string
	// Continue is the token of the next page, or "".
	Continue string
	// Remaining is the number of objects on further pages; a negative one is omitted.
	Remaining int64
}

// SourceError is a failure of one of the merged lists.
type SourceError struct {
	// Source is the index of the list.
	Source int
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *SourceError) Error() string { return fmt.Sprintf("list number %d: %v", e.Source, e.Err) }

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// source is a list to merge.
type source interface {
	// next returns the next object, or io.EOF after the last one, when meta is complete. The item is valid until the next call.
	next(*Item) error
	meta() listMeta
}

// merger reads several lists in key order.
type merger struct {
	options ListOptions
	cursors []cursor
	last    []byte
	items   int
	same    []*Item
	// full, if set, reports that the page has to end.
	full func() bool
}

type cursor struct {
	source
	item Item
	prev []byte
	done bool
	// unread counts the objects after the end of the page.
	unread int64
}

// newMerger reads each source's first object.
func newMerger(sources []source, options ListOptions) (*merger, error) {
	if len(sources) == 0 {
		return nil, errors.New("merging lists: no lists given")
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
		err = fmt.Errorf("the list is not in key order: %q comes after %q", c.item.key, c.prev)
	}
	if err != nil {
		return &SourceError{Source: i, Err: err}
	}
	return nil
}

// each calls show for every object of the merged list, in order, and omit, if it is set, for those that are not shown.
func (m *merger) each(show, omit func(*Item) error) error {
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
		for i, item := range candidates {
			if omit != nil && i != chosen {
				if err := omit(item); err != nil {
					return err
				}
			}
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

// atEnd reports whether the page has to end here: it is full, or a source's own page is at its end, so that the next objects of that
// source could precede all others.
func (m *merger) atEnd() bool {
	if m.options.Limit > 0 && m.items >= m.options.Limit || m.full != nil && m.full() {
		return true
	}
	for i := range m.cursors {
		if c := &m.cursors[i]; c.done && c.meta().token != "" {
			return true
		}
	}
	return false
}

// lowest returns the current objects with the lowest key; none if all lists are at their end.
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
