package splice

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
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
	// left is the size of the objects not yet read, in bytes.
	left uint64
	buf  []byte
}

// openProtoStream reads up to the first object.
func openProtoStream(r io.Reader, maxObject int) (*protoStream, error) {
	if maxObject <= 0 {
		maxObject = defaultMaxValue
	}
	s := &protoStream{r: bufio.NewReaderSize(r, firstBuffer), maxObject: maxObject}
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
	s.buf = s.buf[:0]
	for len(s.buf) < int(size) {
		at := len(s.buf)
		s.buf = append(s.buf, make([]byte, min(int(size)-at, max(at, firstBuffer)))...)
		if _, err := io.ReadFull(s.r, s.buf[at:]); err != nil {
			return nil, unexpectedEOF(err)
		}
	}
	return s.buf, nil
}

// streamProto merges lists that are shown completely, so that the length of the result follows from their heads.
func streamProto(w io.Writer, lists []io.Reader, options ListOptions) (Page, error) {
	sources := make([]source, len(lists))
	streams := make([]*protoStream, len(lists))
	page := Page{Versions: make([]string, len(lists))}
	size := 0
	for i, r := range lists {
		stream, err := openProtoStream(r, options.MaxObject)
		if err == nil && stream.head.token != "" {
			err = errors.New("the list has further pages although the request had no limit")
		}
		if err == nil && stream.left > maxProtoList {
			err = ErrTooLarge
		}
		if err != nil {
			return Page{}, &SourceError{Source: i, Err: err}
		}
		sources[i], streams[i] = stream, stream
		page.Versions[i] = stream.head.version
		page.Drained = append(page.Drained, i)
		size += int(stream.left)
	}
	m, err := newMerger(sources, options)
	if err != nil {
		return Page{}, err
	}
	metadata, err := options.Finish(page)
	if err != nil {
		return page, err
	}
	if options.Begin != nil {
		w = &beginWriter{Writer: w, begin: options.Begin}
	}
	out := newProtoWriter(w)
	out.head(streams[0].typeMeta, metadata, size)
	if err := m.each(func(item *Item) error { return out.item(item.raw) }); err != nil {
		return page, err
	}
	page.Items, page.Last = m.items, string(m.last)
	return page, out.finish()
}
