package slab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mapRegion returns zeroed memory that the system backs page by page as it is used.
func mapRegion(size int) []byte {
	region, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		// The heap panics as well when memory is exhausted.
		panic(fmt.Sprintf("out of memory: mapping %d bytes: %v", size, err))
	}
	return region
}

// unmapRegion releases a region.
func unmapRegion(region []byte) {
	if err := unix.Munmap(region); err != nil {
		panic(fmt.Sprintf("unmapping %d bytes: %v", len(region), err))
	}
}

// releaseRange releases the pages but keeps the addresses, whose content becomes zero.
func releaseRange(b []byte) {
	// A failure costs memory, nothing else.
	_ = unix.Madvise(b, unix.MADV_DONTNEED)
}
