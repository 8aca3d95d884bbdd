package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestReferenceIsUpToDate(t *testing.T) {
	const dir = "../../docs/cli"
	pages := referencePages(newRoot())
	for name, want := range pages {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date (%v); run `make generate`", filepath.Join(dir, name), err)
		}
	}
	written, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || len(written) != len(pages) {
		t.Errorf("%s has %d pages, want %d (%v)", dir, len(written), len(pages), err)
	}
}

func TestHelpTexts(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || strings.Contains(cmd.Short, "\n") {
			t.Errorf("%s: the short help is %q; want one line without a full stop", cmd.CommandPath(), cmd.Short)
		}
		for _, line := range strings.Split(cmd.Long, "\n") {
			if len(line) > 80 {
				t.Errorf("%s: a line of the help is longer than 80 columns: %q", cmd.CommandPath(), line)
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Usage == "" {
				t.Errorf("%s: --%s has no usage text", cmd.CommandPath(), flag.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRoot())
}
