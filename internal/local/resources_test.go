package local

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestResources(t *testing.T) {
	const gib = 1 << 30
	for _, test := range []struct {
		name         string
		memory, disk int64
		want         string
	}{
		{"enough of both", 8 * gib, 8 * gib, ""},
		{"too little memory", 1 * gib, 8 * gib, "not enough memory: 6 control planes need about 4.2 GiB and 1.0 GiB are available"},
		{"too little disk", 8 * gib, 1 * gib, "not enough disk: the federation needs about 1.8 GiB and 1.0 GiB are free in /somewhere"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := checkResources("/somewhere", DefaultSpec, test.memory, test.disk)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)):
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

func TestSystemResources(t *testing.T) {
	if memory, err := availableMemory(); err != nil || memory <= 0 {
		t.Errorf("available memory is %d, %v", memory, err)
	}
	// The directory need not exist.
	if disk, err := freeDisk(filepath.Join(t.TempDir(), "not", "yet")); err != nil || disk <= 0 {
		t.Errorf("free disk is %d, %v", disk, err)
	}
}
