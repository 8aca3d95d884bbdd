package local_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/testenv"
)

func TestSupervisor(t *testing.T) {
	// Longer than a socket path may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	options := local.Options{Binaries: testenv.Binaries(t), NoFsync: true}
	late := &lateParts{note: "one part is built", fail: make(chan error)}
	options.Parts = func(*local.Federation) (local.Parts, error) { return late, nil }
	ended := make(chan error, 1)
	go func() { ended <- local.Supervise(context.Background(), dir, local.Spec{}, options) }()

	client, err := local.NewClient(dir)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the federation is ready", func(ctx context.Context) (bool, error) {
		report, err := client.Report(ctx)
		if report.Phase == local.PhaseFailed {
			t.Fatal(report.Error)
		}
		return report.Phase == local.PhaseReady, err
	})
	if _, err := local.Open(dir, local.Spec{}, options); !errors.Is(err, local.ErrInUse) {
		t.Errorf("opening a federation that is up: %v, want %v", err, local.ErrInUse)
	}
	if err := local.Purge(dir); !errors.Is(err, local.ErrInUse) {
		t.Errorf("purging a federation that is up: %v, want %v", err, local.ErrInUse)
	}
	late.test(t, client)
	testSignals(t, client)
	testAddCell(t, client)

	if err := client.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the supervisor ended with %v", err)
	}
	// The added cell is part of the resumed federation.
	resumed, err := local.Open(dir, local.Spec{}, options)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	if len(resumed.Cells) != 1 || resumed.Cells[0].Name() != "cell-x" {
		t.Errorf("resumed with %d cells", len(resumed.Cells))
	}
}

// lateParts are parts of which one starts when the federation is ready, and fails.
type lateParts struct {
	local.Parts
	note string
	fail chan error
}

func (*lateParts) Processes() []*process.Process                             { return nil }
func (*lateParts) Contexts() map[string]*rest.Config                         { return nil }
func (*lateParts) Start(context.Context) error                               { return nil }
func (*lateParts) AddCell(context.Context, *controlplane.ControlPlane) error { return nil }

func (p *lateParts) Later() (string, func(context.Context) error) {
	return p.note, func(context.Context) error { return <-p.fail }
}

// test expects that the federation is ready without the late part, and tells why it is missing.
func (p *lateParts) test(t *testing.T, client *local.Client) {
	p.tells(t, client, p.note)
	p.fail <- errors.New("it cannot be built")
	p.tells(t, client, "it cannot be built")
}

func (p *lateParts) tells(t *testing.T, client *local.Client, want string) {
	t.Helper()
	testenv.Eventually(t, "the report says: "+want, func(ctx context.Context) (bool, error) {
		report, err := client.Report(ctx)
		return report.Phase == local.PhaseReady && report.Note == want, err
	})
}

func testSignals(t *testing.T, client *local.Client) {
	const name = "hub/kube-apiserver"
	for _, step := range []struct {
		action, state string
		healthy       bool
	}{
		{"pause", process.StatePaused, false},
		{"resume", process.StateRunning, true},
		{"kill", process.StateRunning, true},
		{"halt", process.StateStopped, false},
		{"resurrect", process.StateRunning, true},
		{"restart", process.StateRunning, true},
	} {
		if err := client.Signal(t.Context(), name, step.action); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, name+" is "+step.state+" after "+step.action, func(ctx context.Context) (bool, error) {
			report, err := client.ReportWithProcesses(ctx)
			for _, p := range report.Processes {
				if p.Name == name {
					return p.State == step.state && p.Healthy == step.healthy, nil
				}
			}
			return false, err
		})
	}
	if err := client.Signal(t.Context(), "hub/nothing", "kill"); err == nil || !strings.Contains(err.Error(), "no process") {
		t.Errorf("killing an unknown process: %v", err)
	}
	if err := client.Signal(t.Context(), name, "tickle"); err == nil || !strings.Contains(err.Error(), "no action") {
		t.Errorf("an unknown action: %v", err)
	}
}

// testAddCell adds a cell to a running federation.
func testAddCell(t *testing.T, client *local.Client) {
	for range 2 { // the second call does nothing
		if err := client.AddCell(t.Context(), "cell-x"); err != nil {
			t.Fatal(err)
		}
	}
	report, err := client.ReportWithProcesses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range report.Processes {
		if strings.HasPrefix(p.Name, "cell-x/") && p.Healthy {
			found = append(found, p.Name)
		}
	}
	if len(found) != 2 || report.Total != 2 {
		t.Errorf("with %d control planes, the new cell runs %v", report.Total, found)
	}
	for name, want := range map[string]string{"hub": "another control plane", "Cell_X": "cannot be the name of a cell"} {
		if err := client.AddCell(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("adding %q: %v, want %q", name, err, want)
		}
	}
}
