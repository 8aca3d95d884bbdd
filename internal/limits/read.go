package limits

import (
	"errors"
	"fmt"
	"io"
)

const (
	// Free is the size up to which what a request holds is not counted. The number of concurrent requests bounds these.
	Free = 64 << 10
	// maxPreallocated limits the buffer that is allocated for an announced length.
	maxPreallocated = 3 << 20
)

// ErrTooLarge is returned for a reader that has more than it may.
var ErrTooLarge = errors.New("too large")

// ReadAll reads a reader to its end. It calls hold before it allocates more than a little memory, with the number of bytes. The length is the
// expected one, or negative.
func ReadAll(r io.Reader, length, most int64, hold func(bytes int64) error) ([]byte, error) {
	capacity := min(max(length+1, 4<<10), maxPreallocated)
	if capacity > Free {
		if err := hold(capacity); err != nil {
			return nil, err
		}
	}
	content := make([]byte, 0, capacity)
	r = io.LimitReader(r, most+1)
	for {
		if len(content) == cap(content) {
			if next := 2 * cap(content); next > Free {
				if err := hold(int64(next - cap(content))); err != nil {
					return nil, err
				}
			}
			content = append(make([]byte, 0, 2*cap(content)), content...)
		}
		n, err := r.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		switch {
		case int64(len(content)) > most:
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)
		case errors.Is(err, io.EOF):
			return content, nil
		case err != nil:
			return content, err
		}
	}
}
