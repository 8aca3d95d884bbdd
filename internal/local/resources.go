package local

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Measured needs of a busy control plane, rounded up.
const (
	hubOrCellMemory = 500 << 20
	memberMemory    = 950 << 20
	planeDisk       = 300 << 20
)

// CheckResources returns an error if memory or disk space are too small for a federation in dir. Unknown values count as
// enough.
func CheckResources(dir string, spec Spec) error {
	memory, err := availableMemory()
	if err != nil {
		memory = math.MaxInt64
	}
	disk, err := freeDisk(dir)
	if err != nil {
		disk = math.MaxInt64
	}
	return checkResources(dir, spec, memory, disk)
}

func checkResources(dir string, spec Spec, memory, disk int64) error {
	planes := int64(len(spec.ControlPlaneNames()))
	members := int64(spec.Members)
	if need := (planes-members)*hubOrCellMemory + members*memberMemory; memory < need {
		return fmt.Errorf("not enough memory: %d control planes need about %s and %s are available; use fewer with --cells and --members, or --skip-checks", planes, gibibytes(need), gibibytes(memory))
	}
	if need := planes * planeDisk; disk < need {
		return fmt.Errorf("not enough disk: the federation needs about %s and %s are free in %s; use --dir elsewhere, or --skip-checks", gibibytes(need), gibibytes(disk), dir)
	}
	return nil
}

func gibibytes(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// availableMemory returns the memory that is available without swapping.
func availableMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), "MemAvailable:"); found {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable")
}

// freeDisk returns the free disk space at dir, which need not exist.
func freeDisk(dir string) (int64, error) {
	for {
		var stat unix.Statfs_t
		err := unix.Statfs(dir, &stat)
		if err == nil {
			return int64(stat.Bavail) * int64(stat.Bsize), nil //nolint:unconvert // other systems have other types
		}
		if !os.IsNotExist(err) || dir == filepath.Dir(dir) {
			return 0, err
		}
		dir = filepath.Dir(dir)
	}
}
