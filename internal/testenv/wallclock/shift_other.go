//go:build !linux || !amd64

package wallclock

import (
	"errors"
	"time"
)

// Supported tells whether Shift works on this machine.
const Supported = false

// Shift is not possible here.
func Shift(int, time.Duration) error {
	return errors.New("the wall clock of a process can be set only on Linux and amd64")
}
