package synthetic

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Encoder encodes pods. It encodes one pod per workload and patches copies of it for the others, so that generating ten million pods
// takes less time than storing them.
type Encoder struct {
	number int
	work   workload
	first  individual
	raw    []byte
	places []place
}

// place is the place of a part of an individual in the encoded pod.
type place struct {
	offset int
	part   int
}

// Encode returns the ith pod in one of its revisions, encoded.
func (e *Encoder) Encode(i, revision int) ([]byte, error) {
	one := newIndividual(i, revision)
	number := i / PodsPerWorkload
	w := e.work
	if e.raw == nil || e.number != number {
		w = newWorkload(number)
	}
	if w.statefulSet {
		return w.pod(one).Marshal()
	}
	if e.raw == nil || e.number != number {
		raw, err := w.pod(one).Marshal()
		if err != nil {
			return nil, fmt.Errorf("encoding a pod: %w", err)
		}
		e.number, e.work, e.first, e.raw = number, w, one, raw
		e.findPlaces()
	}
	raw := bytes.Clone(e.raw)
	parts := one.parts()
	for _, p := range e.places {
		copy(raw[p.offset:], parts[p.part])
	}
	return raw, nil
}

// findPlaces finds all parts of the individual in the encoded pod.
func (e *Encoder) findPlaces() {
	e.places = e.places[:0]
	for i, part := range e.first.parts() {
		for offset := 0; ; {
			at := bytes.Index(e.raw[offset:], part)
			if at < 0 {
				break
			}
			e.places = append(e.places, place{offset + at, i})
			offset += at + len(part)
		}
	}
}

// parts returns the bytes that differ between the pods of a workload. A part precedes those that it contains.
func (o individual) parts() [][]byte {
	seconds := func(at time.Time) []byte {
		return protowire.AppendVarint([]byte{1 << 3}, uint64(at.Unix()))
	}
	parts := [][]byte{
		[]byte("-" + o.suffix), []byte(o.uid), []byte(o.version), []byte(o.node), []byte(o.host), []byte(o.address), []byte("kube-api-access-" + o.access),
		[]byte(o.network), []byte(o.restartedAt),
		seconds(o.created), seconds(o.created.Add(time.Second)), seconds(o.created.Add(3 * time.Second)), seconds(o.ready), seconds(o.ready.Add(-time.Second)),
	}
	for _, container := range o.containers {
		parts = append(parts, []byte(container))
	}
	return parts
}
