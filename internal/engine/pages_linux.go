package engine

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dropProgramPages takes the pages of the program's file out of the memory of the process. Starting reads most of the
// file, above all the descriptions of kinds, and later little of that is needed; what is, the kernel maps again when it is
// used, from its cache.
func dropProgramPages() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the program's file: %w", err)
	}
	described, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("finding the program's pages: %w", err)
	}
	for _, m := range unchangedMappings(described, program) {
		if _, _, failed := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); failed != 0 {
			return fmt.Errorf("dropping the program's pages: %w", failed)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unchangedMappings returns where a file is mapped that cannot be written and has not been: what is there is what the
// file has. A page that was changed, by relocation or a debugger, would be lost.
func unchangedMappings(smaps []byte, file string) []mapping {
	var found []mapping
	var current *mapping
	lines := bufio.NewScanner(bytes.NewReader(smaps))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if !strings.HasSuffix(fields[0], ":") { // the head of a mapping
			current = readOnly(fields, file)
			continue
		}
		if current != nil && fields[0] == "Anonymous:" {
			if fields[1] == "0" {
				found = append(found, *current)
			}
			current = nil
		}
	}
	return found
}

// readOnly returns the range that the head of a mapping tells of, nil if it is not one of the file or may be written.
func readOnly(head []string, file string) *mapping {
	if len(head) < 6 || strings.Join(head[5:], " ") != file || strings.Contains(head[1], "w") {
		return nil
	}
	from, to, _ := strings.Cut(head[0], "-")
	start, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return nil
	}
	end, err := strconv.ParseUint(to, 16, 64)
	if err != nil || end <= start {
		return nil
	}
	return &mapping{uintptr(start), uintptr(end)}
}
