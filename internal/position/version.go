package position

import (
	"fmt"
	"strconv"
)

const (
	// MaxRevision is the highest revision of a cell's store that a Version can hold: 10 000 writes a second for three years.
	MaxRevision = 999_999_999_999
	// MaxNumber is the highest number of a cell. It stands for the hub.
	MaxNumber = 999
	// MaxChange is the highest number of a change of ownership. Higher ones would exceed 63 bits.
	MaxChange = 9_221

	revisions = MaxRevision + 1
	numbers   = MaxNumber + 1
	// leastVersion is below every Version, and above every plain revision.
	leastVersion = numbers * revisions
)

// Version is the resourceVersion of one revision of one object. Reads, lists, writes and watches show the same for the same revision. As a
// decimal integer it is
//
//	cccc  nnn  rrrrrrrrrrrr
//	 │     │        └─ 12 digits: the revision in the store of the cell
//	 │     └─ 3 digits: the number of the cell
//	 └─ the number of the change by which the cell became the owner of the object's slot, from 1
//
// It fits into 63 bits. A move to another cell raises the change, so the version of an object only grows. A version has at least 16 digits,
// and is therefore never a plain revision, which has at most 12.
type Version struct {
	Change   uint16
	Cell     uint16
	Revision uint64
}

// Append appends the version as a resourceVersion to dst.
func (v Version) Append(dst []byte) ([]byte, error) {
	if v.Change == 0 || v.Change > MaxChange || v.Cell > MaxNumber || v.Revision == 0 || v.Revision > MaxRevision {
		return dst, fmt.Errorf("encoding a version: change %d, cell %d and revision %d are out of range", v.Change, v.Cell, v.Revision)
	}
	return strconv.AppendUint(dst, v.integer(), 10), nil
}

func (v Version) integer() uint64 {
	return (uint64(v.Change)*numbers+uint64(v.Cell))*revisions + v.Revision
}

// String returns the version as a resourceVersion. It is empty if the version cannot be encoded.
func (v Version) String() string {
	b, err := v.Append(nil)
	if err != nil {
		return ""
	}
	return string(b)
}

// ParseVersion reads a version. It accepts exactly the strings that Append produces.
func ParseVersion(s string) (Version, error) {
	kind, err := Classify(s)
	if err != nil {
		return Version{}, err
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if kind != Object || err != nil {
		return Version{}, fmt.Errorf("parsing resourceVersion %.60q as the version of an object: %w", s, ErrForeign)
	}
	v := Version{Change: uint16(n / revisions / numbers), Cell: uint16(n / revisions % numbers), Revision: n % revisions}
	if v.Change > MaxChange || v.Revision == 0 {
		return Version{}, fmt.Errorf("parsing resourceVersion %q as the version of an object: %w", s, ErrForeign)
	}
	return v, nil
}
