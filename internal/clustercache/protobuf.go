package clustercache

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// WriteProtobuf writes the list in its envelope, as an API server does, without decoding objects. It replaces Objects.
func (l *List) WriteProtobuf(w io.Writer) error {
	metadata := l.protobufMetadata()
	size, err := l.itemsSize()
	if err != nil {
		return err
	}
	kind := l.store.kind.GroupVersionKind
	head := objbytes.AppendTypeMeta(nil, kind.GroupVersion().String(), kind.Kind+"List")
	head = protowire.AppendTag(head, objbytes.UnknownRaw, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(objbytes.SizeBytes(objbytes.ObjectMetadata, len(metadata))+size))
	head = objbytes.AppendBytes(head, objbytes.ObjectMetadata, metadata)

	buffered := bufio.NewWriterSize(w, 64<<10)
	if _, err := buffered.Write(head); err != nil {
		return err
	}
	if err := l.writeItems(buffered, size); err != nil {
		return err
	}
	return buffered.Flush()
}

func (l *List) protobufMetadata() []byte {
	b := objbytes.AppendString(nil, objbytes.ListMetaVersion, strconv.FormatUint(l.Version(), 10))
	if l.token != "" {
		b = objbytes.AppendString(b, objbytes.ListMetaContinue, l.token)
	}
	if l.remaining != nil {
		b = protowire.AppendVarint(protowire.AppendTag(b, objbytes.ListMetaRemaining, protowire.VarintType), uint64(*l.remaining))
	}
	return b
}

// itemsSize returns how many bytes writeItems writes: the length precedes the content.
func (l *List) itemsSize() (int, error) {
	size := 0
	r := &reading{}
	for keys := l.keys; len(keys) > 0; {
		step := keys[:min(gatherStep, len(keys))]
		keys = keys[len(step):]
		more, stale, err := l.sizeOf(step)
		if err != nil {
			return 0, err
		}
		size += more
		for len(stale) > 0 {
			n, err := l.load(r, stale)
			if err != nil {
				return 0, err
			}
			stale = stale[n:]
			for i := range r.loads {
				raw, err := r.decode(l.store, i, r.loads[i].event)
				if err != nil {
					return 0, err
				}
				size += itemSize(len(raw))
			}
		}
	}
	return size, nil
}

// sizeOf returns the size of objects, except those marked stale, which it returns.
func (l *List) sizeOf(keys []uint32) (size int, stale []uint32, err error) {
	s := l.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.history.retains(l.event) {
		return 0, nil, s.expired(l.event)
	}
	for _, k := range keys {
		e := s.visible(k, l.event)
		if e.stale != 0 {
			stale = append(stale, k)
			continue
		}
		size += itemSize(int(e.size))
	}
	return size, stale, nil
}

func itemSize(size int) int { return objbytes.SizeBytes(objbytes.ListItems, size) }

func (l *List) writeItems(w *bufio.Writer, size int) error {
	r := &reading{}
	var head []byte
	for keys := l.keys; len(keys) > 0; {
		n, err := l.load(r, keys)
		if err != nil {
			return err
		}
		keys = keys[n:]
		for i := range r.loads {
			raw, err := r.decode(l.store, i, r.loads[i].event)
			if err != nil {
				return err
			}
			size -= itemSize(len(raw))
			head = protowire.AppendVarint(protowire.AppendTag(head[:0], objbytes.ListItems, protowire.BytesType), uint64(len(raw)))
			if _, err := w.Write(head); err != nil {
				return err
			}
			if _, err := w.Write(raw); err != nil {
				return err
			}
		}
	}
	if size != 0 {
		return fmt.Errorf("the list is %d bytes shorter than announced", size)
	}
	return nil
}
