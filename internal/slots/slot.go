package slots

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/cellplane/cellplane/api/names"
)

// Count is the number of slots. It is part of the data format: changing it moves every object.
const Count = 16384

// Slot is the unit in which objects are assigned to cells; valid slots are less than Count.
type Slot uint16

// String returns the slot in the form that ParseHint accepts.
func (s Slot) String() string { return strconv.Itoa(int(s)) }

// longestKey is a namespace (63), the slash and an object name (253), rounded up.
const longestKey = 320

// Of returns the slot of an object. The kind does not matter, so objects of one name live together. A cluster-scoped object has an empty
// namespace.
func Of(namespace, name string) Slot {
	if len(namespace)+1+len(name) > longestKey {
		return ofLong(namespace, name)
	}
	var buf [longestKey]byte
	n := copy(buf[:], namespace)
	buf[n] = '/'
	n++
	n += copy(buf[n:], name)
	return Slot(xxhash.Sum64(buf[:n]) % Count)
}

// ofLong is Of for names that no API server accepts, but a hostile client may send.
func ofLong(namespace, name string) Slot {
	var d xxhash.Digest
	d.Reset()
	// A digest's writes never fail.
	_, _ = d.WriteString(namespace)
	_, _ = d.WriteString("/")
	_, _ = d.WriteString(name)
	return Slot(d.Sum64() % Count)
}

// HintLabel is the label with the slot of a derived object's template, for objects whose name does not determine it.
const HintLabel = names.SlotLabel

var errHint = errors.New("a slot hint is a decimal number below " + strconv.Itoa(Count) + " without sign or leading zeros")

// ParseHint parses the value of HintLabel. It accepts exactly the strings that Slot.String returns: a slot has one spelling, so that label
// selectors find all of its objects.
func ParseHint(value string) (Slot, error) {
	if len(value) == 0 || len(value) > 5 || (value[0] == '0' && len(value) > 1) {
		return 0, fmt.Errorf("parsing slot hint %.20q: %w", value, errHint)
	}
	n := 0
	for i := range len(value) {
		c := value[i]
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("parsing slot hint %.20q: %w", value, errHint)
		}
		n = n*10 + int(c-'0')
	}
	if n >= Count {
		return 0, fmt.Errorf("parsing slot hint %.20q: %w", value, errHint)
	}
	return Slot(n), nil
}
