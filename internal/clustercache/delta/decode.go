package delta

import "encoding/binary"

// Decode appends the byte string that a delta encodes relative to a template's content.
func Decode(dst, content, delta []byte) ([]byte, error) {
	size, n := binary.Uvarint(delta)
	if n <= 0 || size > MaxSize {
		return nil, errMalformed
	}
	delta = delta[n:]
	end := len(dst) + int(size)
	if cap(dst) < end {
		dst = append(make([]byte, 0, end), dst...)
	}
	at := 0
	for len(dst) < end {
		op, n := binary.Uvarint(delta)
		if n <= 0 || op>>opBits > MaxSize {
			return nil, errMalformed
		}
		delta = delta[n:]
		length := int(op >> opBits)
		var err error
		switch op & opMask {
		case opCopy:
			skip, n := binary.Varint(delta)
			if n <= 0 || skip > MaxSize || skip < -MaxSize {
				return nil, errMalformed
			}
			delta = delta[n:]
			at += int(skip)
			if at < 0 || at+length > len(content) || len(dst)+length > end {
				return nil, errMalformed
			}
			dst = append(dst, content[at:at+length]...)
			at += length
		case opLiteral:
			if length > len(delta) || len(dst)+length > end {
				return nil, errMalformed
			}
			dst = append(dst, delta[:length]...)
			delta = delta[length:]
		case opHex:
			dst, delta, err = unpack(dst, delta, length, end)
		case opUID:
			dst, delta, err = unpackUIDs(dst, delta, length, end)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(delta) > 0 {
		return nil, errMalformed
	}
	return dst, nil
}

func unpack(dst, delta []byte, length, end int) (out, rest []byte, err error) {
	if length > len(delta) || len(dst)+2*length > end {
		return nil, nil, errMalformed
	}
	for _, b := range delta[:length] {
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return dst, delta[length:], nil
}

func unpackUIDs(dst, delta []byte, count, end int) (out, rest []byte, err error) {
	for range count {
		if len(delta) < 16 || len(dst)+uidSize > end {
			return nil, nil, errMalformed
		}
		for i, b := range delta[:16] {
			if i == 4 || i == 6 || i == 8 || i == 10 {
				dst = append(dst, '-')
			}
			dst = append(dst, digits[b>>4], digits[b&15])
		}
		delta = delta[16:]
	}
	return dst, delta, nil
}
