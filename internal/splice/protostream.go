package splice

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// protoStream reads a list in protobuf object by object. The list has to be as API servers write it: type, then metadata, then objects.
type protoStream struct {
	r         *bufio.Reader
	maxObject int
	typeMeta  []byte
	head      listMeta
	// size is the size of all objects, and left that of those not yet read, in bytes.
	size int
	left uint64
	buf  []byte
	// hold, if set, is called before the buffer grows.
	hold func(bytes int) error
}

// openProtoStream reads up to the first object.
func openProtoStream(r io.Reader, maxObject int, hold func(int) error) (*protoStream, error) {
	if maxObject <= 0 {
		maxObject = defaultMaxValue
	}
	s := &protoStream{r: bufio.NewReaderSize(r, firstBuffer), maxObject: maxObject, hold: hold}
	prefix, err := s.bytes(uint64(len([]byte(objbytes.ProtobufPrefix))))
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(prefix, []byte(objbytes.ProtobufPrefix)) {
		return nil, errNotProto
	}
	if _, err := s.field(objbytes.UnknownTypeMeta); err != nil {
		return nil, err
	}
	s.typeMeta = bytes.Clone(s.buf)
	if _, s.left, err = s.header(objbytes.UnknownRaw); err != nil {
		return nil, err
	}
	n, err := s.field(objbytes.ObjectMetadata)
	if err != nil {
		return nil, err
	}
	if n > s.left {
		return nil, errProto
	}
	s.left -= n
	s.head, err = parseProtoListMeta(s.buf)
	return s, err
}

func (s *protoStream) meta() listMeta { return s.head }

func (s *protoStream) next(item *Item) error {
	if s.left == 0 {
		return s.end()
	}
	n, err := s.field(objbytes.ListItems)
	if err != nil {
		return err
	}
	if n > s.left {
		return errProto
	}
	s.left -= n
	item.raw, item.parse = s.buf, parseProtoItem
	item.key, err = appendProtoKey(item.key[:0], item.raw)
	return err
}

// end reads what follows the list. That may only be its content encoding, which has to be plain.
func (s *protoStream) end() error {
	for {
		if _, err := s.r.Peek(1); err != nil {
			return err // io.EOF at the end
		}
		number, size, err := s.header(0)
		if err != nil {
			return err
		}
		content, err := s.bytes(size)
		if err != nil {
			return err
		}
		if number != objbytes.UnknownContentEncoding && number != objbytes.UnknownContentType || len(content) > 0 && string(content) != ProtobufContentType {
			return fmt.Errorf("%w: unexpected field %d after the list", errProto, number)
		}
	}
}

// field reads a whole field into buf and returns its size with tag and length.
func (s *protoStream) field(number protowire.Number) (uint64, error) {
	_, size, err := s.header(number)
	if err != nil {
		return 0, err
	}
	if _, err := s.bytes(size); err != nil {
		return 0, err
	}
	return uint64(objbytes.SizeBytes(number, int(size))), nil
}

// header reads the tag and length of a field with a number; 0 accepts any.
func (s *protoStream) header(wanted protowire.Number) (number protowire.Number, size uint64, err error) {
	tag, err := s.varint()
	if err != nil {
		return 0, 0, err
	}
	number, kind := protowire.DecodeTag(tag)
	if kind != protowire.BytesType || number < 1 || (wanted != 0 && number != wanted) {
		return 0, 0, fmt.Errorf("%w: unexpected field %d of type %d", errProto, number, kind)
	}
	size, err = s.varint()
	return number, size, err
}

// varint reads a number in its shortest encoding, which the computation of left relies on.
func (s *protoStream) varint() (uint64, error) {
	var v uint64
	for read := 1; read <= binary.MaxVarintLen64; read++ {
		b, err := s.r.ReadByte()
		if err != nil {
			return 0, unexpectedEOF(err)
		}
		v |= uint64(b&0x7f) << (7 * (read - 1))
		if b >= 0x80 {
			continue
		}
		if read != protowire.SizeVarint(v) {
			return 0, errProto
		}
		return v, nil
	}
	return 0, errProto
}

// bytes reads into buf, which grows only as bytes arrive.
func (s *protoStream) bytes(size uint64) ([]byte, error) {
	if size > uint64(s.maxObject) {
		return nil, ErrTooLarge
	}
	var err error
	s.buf, err = readInto(s.buf, s.r, int(size), s.hold)
	return s.buf, err
}

// streamProto writes a whole list while it reads its sources. The length of the result follows from their heads.
func (m *merger) streamProto(w io.Writer, streams []*protoStream) (Page, error) {
	page := Page{Versions: make([]string, len(streams))}
	size := 0
	for i, stream := range streams {
		page.Versions[i] = stream.head.version
		page.Drained = append(page.Drained, i)
		size += stream.size
	}
	metadata, err := m.options.Finish(page)
	if err != nil {
		return page, err
	}
	if m.options.Begin != nil {
		w = &beginWriter{Writer: w, begin: m.options.Begin}
	}
	out := newProtoWriter(w)
	out.head(streams[0].typeMeta, metadata, size)
	show := func(item *Item) error { return out.item(item.raw) }
	omit := func(item *Item) error { return out.omit(len(item.raw)) }
	if err := m.each(show, omit); err != nil {
		return page, err
	}
	page.Items, page.Last = m.items, string(m.last)
	return page, out.finish()
}

const (
	// minItem is the least size of an object in a list. Every object has a name, a UID and a creation time.
	minItem = 64
	// maxGrowth is by how much an object may grow with its version: the digits of the version, and the lengths of metadata and object.
	maxGrowth = maxVersion - 1 + 2
	// minPadding is the least size of the padding at the end of a list.
	minPadding = 4
)

var errGrowth = fmt.Errorf("%w: the objects of a list are too small", errProto)

// stampProto writes a whole list with other versions. The first part is held in memory; a larger list is written while it is read.
func (m *merger) stampProto(w io.Writer, streams []*protoStream) (Page, error) {
	page := Page{Versions: make([]string, len(streams))}
	for i, stream := range streams {
		page.Versions[i] = stream.head.version
		page.Drained = append(page.Drained, i)
	}
	metadata, err := m.options.Finish(page)
	if err != nil {
		return page, err
	}
	most := m.options.MaxPage
	if most <= 0 {
		most = defaultMaxPage
	}
	if m.options.Begin != nil {
		w = &beginWriter{Writer: w, begin: m.options.Begin}
	}
	out := newProtoWriter(w)
	var stamp protoStamper
	var items []byte
	begun, left := false, 0
	show := func(item *Item) error {
		raw, err := stamp.object(item, m.options.Version)
		if err != nil {
			return err
		}
		if begun {
			if left -= objbytes.SizeBytes(objbytes.ListItems, len(raw)); left < minPadding {
				return &SourceError{Source: item.Source, Err: errGrowth}
			}
			return out.item(raw)
		}
		if items, err = m.hold(items, raw); err != nil || len(items) < most {
			return err
		}
		begun, left = true, m.room(streams)
		out.head(streams[0].typeMeta, metadata, len(items)+left)
		_, err = out.Write(items)
		items = nil
		return err
	}
	if err := m.each(show, nil); err != nil {
		return page, err
	}
	if begun {
		_ = out.pad(left)
	} else {
		out.head(streams[0].typeMeta, metadata, len(items))
		_, _ = out.Write(items)
	}
	page.Items, page.Last = m.items, string(m.last)
	return page, out.finish()
}

// room returns the size that the objects not shown yet can have with their versions, and the padding.
func (m *merger) room(streams []*protoStream) int {
	unread := 0
	for i, stream := range streams {
		unread += int(stream.left)
		if !m.cursors[i].done {
			unread += objbytes.SizeBytes(objbytes.ListItems, len(m.cursors[i].item.raw))
		}
	}
	return unread + (unread/minItem+1)*maxGrowth + minPadding
}
