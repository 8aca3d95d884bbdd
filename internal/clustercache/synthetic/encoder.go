package synthetic

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Encoder encodes pods. It encodes one of each workload and writes the others over a copy of it: making up ten million pods is not to
// take longer than taking them in.
type Encoder struct {
	number int
	work   workload
	first  individual
	raw    []byte
	places []place
}

// place is where a part of an individual is in the encoded pod.
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

// findPlaces looks for all parts of the individual that was encoded.
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

// parts returns the bytes that are different in the pods of a workload. A part comes before those that it contains.
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
