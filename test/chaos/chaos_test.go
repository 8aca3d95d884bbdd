package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	_ "github.com/cellplane/cellplane/internal/cli" // the program is built from it: a result of another one must not be taken from the cache
	"github.com/cellplane/cellplane/internal/testenv"
)

var (
	seedFlag = flag.Uint64("chaos.seed", 0, "the seed of one run; 0 means a few that are always the same")
	duration = flag.Duration("chaos.duration", 15*time.Second, "how long each seed runs at least")
	runs     = flag.Int("chaos.runs", 1, "how many seeds to run, counting up from the first")
	crowd    = flag.Int("chaos.clients", 5, "how many clients there are")
	noKills  = flag.Bool("chaos.no-kills", false, "leave all processes alone")
	noMoves  = flag.Bool("chaos.no-moves", false, "leave the topology alone")
)

// program is the cellplane under test.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "cellplane-chaos-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "cellplane")
		if output, err := exec.Command("go", "build", "-o", program, "github.com/cellplane/cellplane/cmd/cellplane").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building cellplane: %v\n%s", err, output)
			return 1
		}
		return m.Run()
	}())
}

// TestChaos disturbs one federation by one seed after the other.
func TestChaos(t *testing.T) {
	w, err := newWorld(t.Context(), filepath.Join(t.TempDir(), "federation"), program, testenv.Binaries(t))
	t.Cleanup(func() {
		if err := w.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	first := *seedFlag
	if first == 0 {
		first = 1
	}
	for i := range *runs {
		seed := first + uint64(i)
		if !t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { disturb(t, w, seed) }) {
			t.Fatalf("replay with: make chaos ARGS='-chaos.seed=%d -chaos.duration=%v'", seed, *duration)
		}
	}
}

const (
	// longRun is from when on a run has time for a hub manager to lose its lease.
	longRun = 30 * time.Second
	// repertoireWithin is how much longer a run may take for everything to have been done once.
	repertoireWithin = 3 * time.Minute
)

// disturb lets the nemesis do everything it can, at least once, while clients work.
func disturb(t *testing.T, w *world, seed uint64) {
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // it has to be the same again
	h := newHistory()
	people, err := w.newClients(h)
	if err != nil {
		t.Fatal(err)
	}
	informed, stopInformer := context.WithCancel(t.Context())
	defer stopInformer()
	s, err := newSteady(informed, w.through(w.crew.addresses[len(w.crew.addresses)-1]), 12)
	if err != nil {
		t.Fatal(err)
	}
	n := &nemesis{
		random: random, hub: w.hub, processes: w.federation.Processes, cells: []string{"cell-a", "cell-b", "cell-c"},
		kills: !*noKills, moves: !*noMoves,
	}
	if *duration >= longRun {
		n.longest = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), *duration+repertoireWithin)
	defer cancel()
	var group sync.WaitGroup
	for i := range *crowd {
		own := rand.New(rand.NewPCG(seed, uint64(i)+2)) //nolint:gosec // as above
		group.Go(func() { people.run(ctx, i, own) })
	}
	group.Go(func() { s.run(ctx) })
	missing := n.run(ctx, *duration)
	cancel()
	group.Wait()
	if len(missing) > 0 {
		t.Errorf("the nemesis did not get to do: %s", strings.Join(missing, ", "))
	}

	if err := w.heal(t.Context(), n); err != nil {
		t.Errorf("after %s: %v", strings.Join(n.did, "; "), err)
	}
	finish(t, people, h)
	testenv.Eventually(t, "the informer knows everything", func(context.Context) (bool, error) {
		lag := s.lags()
		return lag == "", fmt.Errorf("%s", lag)
	})
	judge(t, people, h, s, n)
	tidy(t, people, s)
}

// finish reads every object through every gateway.
func finish(t *testing.T, people *clients, h *history) {
	t.Helper()
	for i := range people.keys {
		for j, gateway := range people.gateways {
			q := question{verb: read, key: fmt.Sprintf("key-%d", i)}
			testenv.Eventually(t, q.key+" can be read", func(ctx context.Context) (bool, error) {
				a := h.ask(100+j, q, func() (answer, bool) {
					a, _, counts := people.send(ctx, gateway, q, "")
					return a, counts
				})
				return a.outcome != unknown, nil
			})
		}
	}
}

// judge looks at what everybody has noted.
func judge(t *testing.T, people *clients, h *history, s *steady, n *nemesis) {
	t.Helper()
	t.Logf("%d operations, %v; the informer listed %d times; nemesis: %s; one by one: %s", len(h.operations), people.count, s.lists, n.summary(), strings.Join(n.did, "; "))
	for _, strange := range people.strange {
		t.Errorf("nobody should be told: %s", strange)
	}
	s.mu.Lock()
	for _, wrong := range s.wrong {
		t.Errorf("the informer: %s", wrong)
	}
	s.mu.Unlock()
	switch result, part := h.check(time.Minute); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Logf("a history is too hard to check:\n%s", describe(part))
	default:
		t.Errorf("there is no order that explains:\n%s", describe(part))
	}
}

// tidy removes what a run has made, for the next one.
func tidy(t *testing.T, people *clients, s *steady) {
	t.Helper()
	remaining := []string{}
	for i := range people.keys {
		remaining = append(remaining, fmt.Sprintf("key-%d", i))
	}
	for i := range s.count {
		remaining = append(remaining, fmt.Sprintf("steady-%d", i))
	}
	for _, key := range remaining {
		testenv.Eventually(t, key+" is gone", func(ctx context.Context) (bool, error) {
			a, _, _ := people.send(ctx, people.gateways[0], question{verb: remove, key: key}, "")
			return a.outcome == done || a.outcome == missing, nil
		})
	}
}
