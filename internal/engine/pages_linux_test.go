package engine

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sampleMappings = `00400000-03a00000 r-xp 00000000 fd:00 1234                               /opt/cell plane/bin
Size:              55296 kB
Rss:               50000 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
03a00000-07000000 r--p 03600000 fd:00 1234                               /opt/cell plane/bin
Anonymous:             0 kB
07000000-07100000 r--p 06c00000 fd:00 1234                               /opt/cell plane/bin
Anonymous:             4 kB
07100000-07200000 rw-p 06d00000 fd:00 1234                               /opt/cell plane/bin
Anonymous:             0 kB
07200000-07300000 r-xp 00000000 fd:00 99                                 /lib/other
Anonymous:             0 kB
c000000000-c004000000 rw-p 00000000 00:00 0
Anonymous:          1024 kB
`

// Nothing is dropped that the file could not give back.
func TestUnchangedMappings(t *testing.T) {
	got := unchangedMappings([]byte(sampleMappings), "/opt/cell plane/bin")
	want := []mapping{{0x400000, 0x3a00000}, {0x3a00000, 0x7000000}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := unchangedMappings([]byte("zz-10 r-xp 0 0 0 /f\nAnonymous: 0 kB\n20-10 r-xp 0 0 0 /f\nAnonymous: 0 kB\n"), "/f"); len(got) != 0 {
		t.Errorf("nonsense is read as %v", got)
	}
}

func TestProgramPagesComeBack(t *testing.T) {
	before := fileMemory(t)
	if err := dropProgramPages(); err != nil {
		t.Fatal(err)
	}
	after := fileMemory(t)
	if after >= before {
		t.Errorf("%d KiB of files were in memory, and then %d", before, after)
	}
}

// fileMemory returns how much memory of this process is pages of files, in KiB.
func fileMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
