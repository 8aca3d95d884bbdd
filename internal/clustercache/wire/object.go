package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// maxName is the longest name and namespace.
const maxName = 253

// Pair is a label. It shares the memory of the object.
type Pair struct{ Key, Value []byte }

// Object is a parsed object. It shares the memory of what was parsed.
type Object struct {
	Namespace, Name, UID, Version []byte
	// Created is the creation time in seconds since 1970.
	Created int64
	// Labels are sorted by key, each key once.
	Labels []Pair
	// Owner is the UID of the controlling owner, or empty.
	Owner []byte

	metadata             objbytes.Metadata
	encodedMetadata, raw []byte
}

// Parse reads an encoded object into o, whose memory is used again.
func (o *Object) Parse(raw []byte) error {
	*o = Object{Labels: o.Labels[:0], raw: raw, metadata: o.metadata}
	o.metadata.Reset()
	field, err := objbytes.ProtobufMetadata(raw)
	if err != nil {
		return err
	}
	o.encodedMetadata = field.Value
	if err := o.parseMetadata(); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return o.validate()
}

func (o *Object) parseMetadata() (err error) {
	m := &o.metadata
	if err := m.ReadProtobuf(o.encodedMetadata); err != nil {
		return err
	}
	o.Name, o.Namespace, o.UID, o.Version = m.Name, m.Namespace, m.UID, m.ResourceVersion
	if o.Created, err = m.Created(); err != nil {
		return fmt.Errorf("creationTimestamp: %w", err)
	}
	if o.Owner, err = m.Controller(); err != nil {
		return fmt.Errorf("ownerReferences: %w", err)
	}
	if err := m.Labels.Each(func(key, value []byte) error {
		o.Labels = append(o.Labels, Pair{key, value})
		return nil
	}); err != nil {
		return fmt.Errorf("labels: %w", err)
	}
	o.sortLabels()
	return nil
}

// sortLabels sorts the labels. Of labels with the same key the last one counts, as it does for decoders.
func (o *Object) sortLabels() {
	compare := func(a, b Pair) int { return bytes.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(o.Labels, compare) {
		slices.SortStableFunc(o.Labels, compare)
	}
	kept := o.Labels[:0]
	for i, label := range o.Labels {
		if i+1 < len(o.Labels) && bytes.Equal(label.Key, o.Labels[i+1].Key) {
			continue
		}
		kept = append(kept, label)
	}
	o.Labels = kept
}

func (o *Object) validate() error {
	switch {
	case len(o.Name) == 0:
		return errors.New("the object has no name")
	case len(o.Name) > maxName || len(o.Namespace) > maxName:
		return errors.New("the object has too long a name or namespace")
	case bytes.ContainsAny(o.Name, "/\x00") || bytes.ContainsAny(o.Namespace, "/\x00"):
		return fmt.Errorf("%.60q is not a valid name", string(o.Namespace)+"/"+string(o.Name))
	}
	for _, label := range o.Labels {
		if bytes.IndexByte(label.Key, 0) >= 0 {
			return fmt.Errorf("%.60q is not a valid label", label.Key)
		}
	}
	return nil
}
