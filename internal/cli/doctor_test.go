package cli

import (
	"errors"
	"testing"
)

// TestDoctorThatCannotExamine expects that scripts do not take mistakes for warnings.
func TestDoctorThatCannotExamine(t *testing.T) {
	for _, args := range [][]string{
		{"--unknown"}, {"argument"}, {"--output", "yaml"}, {"--kubeconfig", "/does/not/exist"},
	} {
		cmd := newDoctor()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		var exit exitError
		if err := cmd.ExecuteContext(t.Context()); !errors.As(err, &exit) || exit.code != 2 {
			t.Errorf("doctor %v ends with %v, want the exit code 2", args, err)
		}
	}
}
