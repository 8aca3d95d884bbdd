package position

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

const (
	epochDigits   = 10
	versionDigits = 19
	headDigits    = 1 + epochDigits

	// MaxEpoch is the highest epoch a position can hold: a topology changed every second for three centuries.
	MaxEpoch = 9_999_999_999
	// MaxVersion is the highest resourceVersion of a cell: etcd's revisions are signed 64-bit numbers.
	MaxVersion = math.MaxInt64
	// MaxCells is the highest number of cells, with the hub.
	MaxCells = 255
	// MaxLength is the length of the longest position in bytes.
	MaxLength = headDigits + MaxCells*versionDigits
)

var (
	// ErrMalformed marks a string that is not a resourceVersion; an API server answers it with 400.
	ErrMalformed = errors.New("it is not a resourceVersion")
	// ErrForeign marks a well-formed resourceVersion that no cell or gateway issued; it is answered like an expired one, with 410.
	ErrForeign = errors.New("it was not issued by this API")
)

// Position is the state of all cells of a topology.
type Position struct {
	// Epoch is the generation of the topology.
	Epoch int64
	// Versions are the cells' resourceVersions in the order of the cells' names. Zero means that the cell has not been read.
	Versions []uint64
}

// Encode returns the position as a resourceVersion.
func (p Position) Encode() (string, error) {
	b, err := p.Append(make([]byte, 0, headDigits+len(p.Versions)*versionDigits))
	if err != nil {
		return "", err
	}
	return string(b), nil
}

// Append appends the position as a resourceVersion to dst.
func (p Position) Append(dst []byte) ([]byte, error) {
	if p.Epoch < 0 || p.Epoch > MaxEpoch {
		return dst, fmt.Errorf("encoding a position: epoch %d is not between 0 and %d", p.Epoch, int64(MaxEpoch))
	}
	if len(p.Versions) == 0 || len(p.Versions) > MaxCells {
		return dst, fmt.Errorf("encoding a position: the number of cells, %d, is not between 1 and %d", len(p.Versions), MaxCells)
	}
	for i, version := range p.Versions {
		if version > MaxVersion {
			return dst, fmt.Errorf("encoding a position: resourceVersion %d of cell %d is larger than any revision of etcd", version, i)
		}
	}
	dst = append(dst, '1')
	dst = appendPadded(dst, uint64(p.Epoch), epochDigits)
	for _, version := range p.Versions {
		dst = appendPadded(dst, version, versionDigits)
	}
	return dst, nil
}

func appendPadded(dst []byte, n uint64, width int) []byte {
	start := len(dst)
	for range width {
		dst = append(dst, '0')
	}
	for i := start + width - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// Parse reads a position. It accepts exactly the strings Encode produces.
func Parse(s string) (Position, error) {
	kind, err := Classify(s)
	if err != nil {
		return Position{}, err
	}
	if kind != Merged {
		return Position{}, fmt.Errorf("parsing resourceVersion %q as a merged position: %w", s, ErrForeign)
	}
	p := Position{Epoch: int64(number(s[1:headDigits])), Versions: make([]uint64, 0, fields(s))}
	for rest := s[headDigits:]; len(rest) > 0; rest = rest[versionDigits:] {
		p.Versions = append(p.Versions, number(rest[:versionDigits]))
	}
	return p, nil
}

// Kind is the meaning of a resourceVersion in a request.
type Kind int

// The kinds of resourceVersion.
const (
	// Unset is the empty string: the most recent state.
	Unset Kind = iota
	// Any is "0": any available state.
	Any
	// Plain is a resourceVersion of one cell.
	Plain
	// Object is the Version of an object.
	Object
	// Merged is a position over all cells.
	Merged
)

// Classify returns the kind of a resourceVersion. The error is ErrMalformed or ErrForeign.
func Classify(s string) (Kind, error) {
	switch s {
	case "":
		return Unset, nil
	case "0":
		return Any, nil
	}
	if s[0] == '0' || !digits(s) {
		return 0, fmt.Errorf("parsing resourceVersion %.60q: %w", s, ErrMalformed)
	}
	if len(s) <= len("18446744073709551615") {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parsing resourceVersion %q: %w", s, ErrMalformed)
		}
		if n >= leastVersion {
			return Object, nil
		}
		return Plain, nil
	}
	if s[0] != '1' || len(s) > MaxLength || fields(s) < 1 || len(s) != headDigits+fields(s)*versionDigits {
		return 0, fmt.Errorf("parsing resourceVersion %.60q: %w", s, ErrForeign)
	}
	for rest := s[headDigits:]; len(rest) > 0; rest = rest[versionDigits:] {
		if number(rest[:versionDigits]) > MaxVersion {
			return 0, fmt.Errorf("parsing resourceVersion %.60q: %w", s, ErrForeign)
		}
	}
	return Merged, nil
}

func fields(s string) int { return (len(s) - headDigits) / versionDigits }

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// number reads at most 19 digits, which never overflow 64 bits.
func number(s string) uint64 {
	var n uint64
	for i := range len(s) {
		n = n*10 + uint64(s[i]-'0')
	}
	return n
}

// Compare orders positions as clients order their encodings.
func Compare(a, b Position) int {
	return cmp.Or(
		cmp.Compare(len(a.Versions), len(b.Versions)),
		cmp.Compare(a.Epoch, b.Epoch),
		slices.Compare(a.Versions, b.Versions),
	)
}

// Covers reports whether everything visible at q is visible at p: both have the same topology and no cell of p is behind that of q.
// This is a partial order: of two positions that do not cover each other, Compare still finds one larger.
func (p Position) Covers(q Position) bool {
	if p.Epoch != q.Epoch || len(p.Versions) != len(q.Versions) {
		return false
	}
	for i, version := range p.Versions {
		if version < q.Versions[i] {
			return false
		}
	}
	return true
}

// Clone returns a position that shares nothing with p.
func (p Position) Clone() Position {
	return Position{Epoch: p.Epoch, Versions: slices.Clone(p.Versions)}
}

// Carry carries a position of an earlier topology with the cells from forward to the topology of an epoch with the cells to; both lists
// are sorted. New cells get zero, which the caller must replace by the resourceVersion from which it watches them. The caller must also
// make sure that the removed cells hold nothing that the client has not seen, or answer 410.
func (p Position) Carry(epoch int64, from, to []string) (Position, error) {
	if len(from) != len(p.Versions) {
		return Position{}, fmt.Errorf("carrying a position forward to epoch %d: it has %d cells, but epoch %d had %d: %w", epoch, len(p.Versions), p.Epoch, len(from), ErrForeign)
	}
	carried := Position{Epoch: epoch, Versions: make([]uint64, len(to))}
	for i, name := range to {
		if j, found := slices.BinarySearch(from, name); found {
			carried.Versions[i] = p.Versions[j]
		}
	}
	return carried, nil
}
