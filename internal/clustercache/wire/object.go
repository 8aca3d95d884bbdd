package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of ObjectMeta and OwnerReference. They are part of the Kubernetes API.
const (
	objectMetadata = 1

	metaName          = 1
	metaNamespace     = 3
	metaUID           = 5
	metaVersion       = 6
	metaCreated       = 8
	metaLabels        = 11
	metaAnnotations   = 12
	metaOwners        = 13
	metaManagedFields = 17

	timeSeconds = 1

	ownerUID        = 4
	ownerController = 6
)

// maxName is how long names and namespaces may be.
const maxName = 253

// Pair is a label. Its bytes are those of the object.
type Pair struct{ Key, Value []byte }

// Object is what Parse finds. Its bytes are those that were parsed.
type Object struct {
	Namespace, Name, UID, Version []byte
	// Created is the creation time in seconds since 1970.
	Created int64
	// Labels are in the order of their keys, each key once.
	Labels []Pair
	// Owner is the UID of the controlling owner, or empty.
	Owner []byte

	metadata []byte
	raw      []byte
}

// Parse reads an encoded object into o, whose memory is used again.
func (o *Object) Parse(raw []byte) error {
	*o = Object{Labels: o.Labels[:0], raw: raw}
	found := false
	for rest := raw; len(rest) > 0; {
		f, after, err := next(rest)
		if err != nil {
			return err
		}
		rest = after
		if f.number != objectMetadata {
			continue
		}
		if found || f.kind != protowire.BytesType {
			return fmt.Errorf("%w: metadata that is not one message", errMalformed)
		}
		found, o.metadata = true, f.value
	}
	if !found {
		return errors.New("the object has no metadata")
	}
	if err := o.parseMetadata(); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return o.validate()
}

func (o *Object) parseMetadata() error {
	for rest := o.metadata; len(rest) > 0; {
		f, after, err := next(rest)
		if err != nil {
			return err
		}
		rest = after
		if f.kind != protowire.BytesType {
			continue
		}
		switch f.number {
		case metaName:
			o.Name = f.value
		case metaNamespace:
			o.Namespace = f.value
		case metaUID:
			o.UID = f.value
		case metaVersion:
			o.Version = f.value
		case metaCreated:
			if o.Created, err = seconds(f.value); err != nil {
				return fmt.Errorf("creationTimestamp: %w", err)
			}
		case metaLabels:
			key, value, err := entry(f.value)
			if err != nil {
				return fmt.Errorf("labels: %w", err)
			}
			o.Labels = append(o.Labels, Pair{key, value})
		case metaOwners:
			if err := o.parseOwner(f.value); err != nil {
				return fmt.Errorf("ownerReferences: %w", err)
			}
		}
	}
	o.sortLabels()
	return nil
}

func (o *Object) parseOwner(message []byte) error {
	var uid []byte
	controller := false
	for len(message) > 0 {
		f, after, err := next(message)
		if err != nil {
			return err
		}
		message = after
		switch {
		case f.number == ownerUID && f.kind == protowire.BytesType:
			uid = f.value
		case f.number == ownerController && f.kind == protowire.VarintType:
			controller = f.varint != 0
		}
	}
	if controller {
		o.Owner = uid
	}
	return nil
}

// sortLabels puts labels in order. Of labels with the same key the last counts, as it does to a decoder.
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
		return errors.New("the object's name is too long")
	case bytes.ContainsAny(o.Name, "/\x00") || bytes.ContainsAny(o.Namespace, "/\x00"):
		return fmt.Errorf("%.60q is no name", string(o.Namespace)+"/"+string(o.Name))
	}
	for _, label := range o.Labels {
		if bytes.IndexByte(label.Key, 0) >= 0 {
			return fmt.Errorf("%.60q is no label", label.Key)
		}
	}
	return nil
}

func seconds(message []byte) (int64, error) {
	var value int64
	for len(message) > 0 {
		f, after, err := next(message)
		if err != nil {
			return 0, err
		}
		message = after
		if f.number == timeSeconds && f.kind == protowire.VarintType {
			value = int64(f.varint)
		}
	}
	return value, nil
}
