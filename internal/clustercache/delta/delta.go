package delta

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// A delta is the decoded length, and operations until that length is reached. Each starts with a varint: the two low bits are the
// operation, the others its length.
const (
	opCopy    = iota // length bytes of the template, at a signed varint offset from the end of the previous copy
	opLiteral        // length bytes follow
	opHex            // length pairs of lower-case hexadecimal digits, packed
	opUID            // length UIDs in their usual form, packed to 16 bytes each
	opBits    = 2
	opMask    = 1<<opBits - 1
)

const (
	// minMatch is how many bytes are hashed. A copy takes about three bytes.
	minMatch = 6
	// minHex is the fewest digits worth an operation.
	minHex = 12

	hashBits = 11
	// stride is the distance of indexed places. Matches are extended to both sides, so that not every place is needed.
	stride  = 2
	uidSize = 36
)

// MaxSize is the longest byte string that can be encoded or decoded.
const MaxSize = 16 << 20

var errMalformed = errors.New("malformed delta")

// Template is the base of deltas. It must not be used concurrently.
type Template struct {
	content []byte
	// index maps hashes to places of the content. It is created on demand: strings that differ from the content only in parts of the same
	// length do not need it.
	index   []uint16
	indexed bool
}

const (
	// reach is how much of a template's content is indexed.
	reach = 1<<16 - 1
	// lookahead is how many differing bytes are skipped in the hope that the next ones match at the same place. It is longer than the
	// longest identifiers of fixed length.
	lookahead = 80
)

// NewTemplate returns a template of content, which must not change.
func NewTemplate(content []byte) *Template { return &Template{content: content} }

// Reset replaces the content and reuses the memory.
func (t *Template) Reset(content []byte) { t.content, t.indexed = content, false }

func (t *Template) makeIndex() {
	if t.index == nil {
		t.index = make([]uint16, 1<<hashBits)
	} else {
		clear(t.index)
	}
	// Backwards, so that the first of equal places stays.
	for i := min(len(t.content)-8, reach-1) &^ (stride - 1); i >= 0; i -= stride {
		t.index[hash(binary.LittleEndian.Uint64(t.content[i:]))] = uint16(i + 1)
	}
	t.indexed = true
}

func hash(x uint64) uint32 {
	const prime = 227718039650203
	return uint32(x << (64 - 8*minMatch) * prime >> (64 - hashBits))
}

// Append appends the delta from the template to b.
func (t *Template) Append(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	literal, copied := 0, 0 // the start of the bytes not yet written, and the end of the last copy in the template
	for i := 0; i < len(b); {
		from, n := t.match(b, i, copied+i-literal)
		if n == 0 {
			if i++; !t.indexed && i-literal == lookahead {
				t.makeIndex()
				i = literal
			}
			continue
		}
		// Extend the match backwards.
		for i > literal && from > 0 && b[i-1] == t.content[from-1] {
			i, from, n = i-1, from-1, n+1
		}
		dst = appendLiteral(dst, b[literal:i])
		dst = binary.AppendUvarint(dst, operation(opCopy, n))
		dst = binary.AppendVarint(dst, int64(from-copied))
		i, copied = i+n, from+n
		literal = i
	}
	return appendLiteral(dst, b[literal:])
}

// operation returns the varint of an operation.
func operation(op uint64, length int) uint64 { return uint64(length)<<opBits | op }

// match finds b at i in the template, first at the place where the last copy would continue.
func (t *Template) match(b []byte, i, at int) (from, n int) {
	const least = 4
	if at+least <= len(t.content) && i+least <= len(b) && binary.LittleEndian.Uint32(t.content[at:]) == binary.LittleEndian.Uint32(b[i:]) {
		return at, least + alike(t.content[at+least:], b[i+least:])
	}
	if !t.indexed || i+8 > len(b) {
		return 0, 0
	}
	place := t.index[hash(binary.LittleEndian.Uint64(b[i:]))]
	if place == 0 {
		return 0, 0
	}
	from = int(place) - 1
	if n = alike(t.content[from:], b[i:]); n < minMatch {
		return 0, 0
	}
	return from, n
}

// alike returns how many bytes a and b have in common from the start.
func alike(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)>>3
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// appendLiteral writes bytes that the template does not have.
func appendLiteral(dst, b []byte) []byte {
	plain := 0
	for i := 0; i < len(b); {
		if isUID(b[i:]) {
			dst = appendPlain(dst, b[plain:i])
			dst = append(dst, 1<<opBits|opUID)
			dst = appendPacked(dst, b[i:i+8])
			for _, part := range [...][2]int{{9, 13}, {14, 18}, {19, 23}, {24, 36}} {
				dst = appendPacked(dst, b[i+part[0]:i+part[1]])
			}
			i += uidSize
			plain = i
			continue
		}
		n := 0
		for i+n < len(b) && digit(b[i+n]) >= 0 {
			n++
		}
		if n < minHex {
			i += max(n, 1)
			continue
		}
		n &^= 1
		dst = appendPlain(dst, b[plain:i])
		dst = binary.AppendUvarint(dst, uint64(n/2)<<opBits|opHex)
		dst = appendPacked(dst, b[i:i+n])
		i += n
		plain = i
	}
	return appendPlain(dst, b[plain:])
}

func appendPlain(dst, b []byte) []byte {
	if len(b) == 0 {
		return dst
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))<<opBits|opLiteral), b...)
}

func appendPacked(dst, digits []byte) []byte {
	for i := 0; i < len(digits); i += 2 {
		dst = append(dst, byte(digit(digits[i])<<4|digit(digits[i+1])))
	}
	return dst
}

func isUID(b []byte) bool {
	if len(b) < uidSize || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return false
	}
	for i, c := range b[:uidSize] {
		if i != 8 && i != 13 && i != 18 && i != 23 && digit(c) < 0 {
			return false
		}
	}
	return true
}

// digit returns the value of a lower-case hexadecimal digit, or -1.
func digit(c byte) int { return int(values[c]) }

var values = func() (v [256]int8) {
	for i := range v {
		v[i] = -1
	}
	for i := range digits {
		v[digits[i]] = int8(i)
	}
	return v
}()

const digits = "0123456789abcdef"

// AppendWhole appends the delta from a template to its own content.
func AppendWhole(dst []byte, size int) []byte {
	dst = binary.AppendUvarint(dst, uint64(size))
	if size == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, operation(opCopy, size))
	return binary.AppendVarint(dst, 0)
}
