package slots

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Owners records for every slot since when its cell owns it. The versions of objects are made from it (position.Version): they must grow when
// an object moves to a cell whose store is at a lower revision.
//
// Changes of ownership are numbered. A change is a topology by which slots get other owners: the start of a migration, its reversal, a
// failover. Cells are numbered too, in the order in which they joined; a number is never used again.
//
// An Owners never changes. Next computes the one of the next topology. The hub manager does that once for each epoch, in their order, and
// publishes the result, so that all gateways show the same versions.
type Owners struct {
	epoch  int64
	change uint16 // the last change
	number uint16 // the last number given to a cell
	cells  map[string]uint16
	slots  [Count]tenure
}

// tenure is who owns a slot: a cell, since a change. While the slot moves, its next owner has objects too.
type tenure struct {
	Owner, Since         uint16
	NextOwner, NextSince uint16
}

// moves reports whether the slot has two owners.
func (t tenure) moves() bool { return t.Owner != t.NextOwner }

// since returns the change by which a cell became an owner, 0 if it is none.
func (t tenure) since(cell uint16) uint16 {
	switch cell {
	case t.NextOwner:
		return t.NextSince
	case t.Owner:
		return t.Since
	default:
		return 0
	}
}

// Limits of what a version can hold. The highest number is HubNumber.
const (
	maxChange = 9_221
	maxNumber = HubNumber - 1
)

// HubNumber stands for the hub in the versions of objects there. No cell gets it.
const HubNumber = 999

// Next returns the owners under the next topology. The receiver may be nil: then m is the first topology.
func (o *Owners) Next(m *Map) (*Owners, error) {
	if o == nil {
		o = &Owners{epoch: -1}
	}
	if m.Epoch() <= o.epoch {
		return nil, fmt.Errorf("recording the owners of slots: epoch %d does not follow epoch %d", m.Epoch(), o.epoch)
	}
	next := &Owners{epoch: m.Epoch(), change: o.change, number: o.number, cells: map[string]uint16{}}
	for i := range m.Cells() {
		if err := next.admit(o, m.Cell(Index(i))); err != nil {
			return nil, err
		}
	}
	for slot := range Slot(Count) {
		route := m.Route(slot)
		t := o.slots[slot].next(next.cells[m.Name(route.Old)], next.cells[m.Name(route.New)], o.change)
		next.slots[slot] = t
		next.change = max(next.change, t.Since, t.NextSince)
	}
	if next.change > maxChange {
		return nil, fmt.Errorf("recording the owners of slots: more than %d changes of ownership cannot be numbered", maxChange)
	}
	return next, nil
}

// admit gives a cell its number. A cell that has failed loses its number: it returns empty, and perhaps with another store.
func (o *Owners) admit(before *Owners, cell Cell) error {
	if cell.State == Failed {
		return nil
	}
	if number, known := before.cells[cell.Name]; known {
		o.cells[cell.Name] = number
		return nil
	}
	if o.number == maxNumber {
		return fmt.Errorf("recording the owners of slots: more than %d cells have joined, which cannot be numbered", maxNumber)
	}
	o.number++
	o.cells[cell.Name] = o.number
	return nil
}

// next returns the tenure of a slot under the next topology, where last is the last change. Objects of the slot may be wherever they were allowed
// to be before. So a cell keeps its tenure only if no other cell can have had newer objects.
func (t tenure) next(owner, nextOwner, last uint16) tenure {
	next := tenure{Owner: owner, Since: t.since(owner), NextOwner: nextOwner}
	goesOn := t.Owner == owner && t.NextOwner == nextOwner
	if next.Since == 0 || t.moves() && t.Owner == owner && !goesOn {
		last++ // another cell has failed
		next.Since = last
	}
	switch {
	case nextOwner == owner:
		next.NextSince = next.Since
	case goesOn:
		next.NextSince = t.NextSince
	default:
		next.NextSince = last + 1
	}
	return next
}

// Epoch returns the epoch of the topology.
func (o *Owners) Epoch() int64 { return o.epoch }

// Number returns the number of a cell; 0 if it has none.
func (o *Owners) Number(cell string) uint16 { return o.cells[cell] }

// Since returns the change by which the cell with a number became an owner of the slot; 0 if it is none.
func (o *Owners) Since(slot Slot, number uint16) uint16 { return o.slots[slot%Count].since(number) }

// Holds reports whether a cell owns a slot, and whether it is its next owner. Both are the same unless the slot moves.
func (o *Owners) Holds(slot Slot, cell string) (owns, next bool) {
	number := o.cells[cell]
	if number == 0 {
		return false, false
	}
	t := o.slots[slot%Count]
	return t.Owner == number, t.NextOwner == number
}

// encoded is the head of an encoded Owners. A table of all tenures follows it, one column after the other.
type encoded struct {
	Epoch  int64             `json:"epoch"`
	Change uint16            `json:"change"`
	Number uint16            `json:"number"`
	Cells  map[string]uint16 `json:"cells"`
}

// Encode returns the owners as a compressed table of some kilobytes.
func (o *Owners) Encode() ([]byte, error) {
	head, err := json.Marshal(encoded{Epoch: o.epoch, Change: o.change, Number: o.number, Cells: o.cells})
	if err != nil {
		return nil, fmt.Errorf("encoding the owners of slots: %w", err)
	}
	plain := slices.Concat(head, []byte{'\n'})
	for _, column := range columns {
		for slot := range o.slots {
			plain = binary.BigEndian.AppendUint16(plain, *column(&o.slots[slot]))
		}
	}
	var compressed bytes.Buffer
	w, err := flate.NewWriter(&compressed, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("encoding the owners of slots: %w", err)
	}
	return compressed.Bytes(), nil
}

// columns are the fields of a tenure.
var columns = []func(*tenure) *uint16{
	func(t *tenure) *uint16 { return &t.Owner },
	func(t *tenure) *uint16 { return &t.Since },
	func(t *tenure) *uint16 { return &t.NextOwner },
	func(t *tenure) *uint16 { return &t.NextSince },
}

// maxEncoded bounds what DecodeOwners reads.
const maxEncoded = 4*2*Count + 64<<10

// DecodeOwners reads what Encode returned.
func DecodeOwners(data []byte) (*Owners, error) {
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxEncoded))
	if err != nil {
		return nil, fmt.Errorf("decoding the owners of slots: %w", err)
	}
	head, table, found := bytes.Cut(plain, []byte{'\n'})
	if !found || len(table) != len(columns)*2*Count {
		return nil, errors.New("decoding the owners of slots: the table is incomplete")
	}
	var e encoded
	if err := json.Unmarshal(head, &e); err != nil {
		return nil, fmt.Errorf("decoding the owners of slots: %w", err)
	}
	o := &Owners{epoch: e.Epoch, change: e.Change, number: e.Number, cells: e.Cells}
	for _, column := range columns {
		for slot := range o.slots {
			*column(&o.slots[slot]) = binary.BigEndian.Uint16(table)
			table = table[2:]
		}
	}
	return o, nil
}
