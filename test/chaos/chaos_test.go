package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	_ "github.com/cellplane/cellplane/internal/cli" // the program under test is built from it, so a change must invalidate cached test results
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/wallclock"
)

var (
	seedFlag     = flag.Uint64("chaos.seed", 0, "first seed; 0 for the default")
	duration     = flag.Duration("chaos.duration", 15*time.Second, "minimum duration of the run of a seed")
	runs         = flag.Int("chaos.runs", 1, "number of seeds, counting up from the first")
	workers      = flag.Int("chaos.clients", 5, "number of clients")
	noKills      = flag.Bool("chaos.no-kills", false, "do not kill or pause processes")
	allFailovers = flag.Bool("chaos.all-failovers", false, "try all failover scenarios, not only the quick ones")
	noCuts       = flag.Bool("chaos.no-cuts", false, "do not cut the network")
	noClocks     = flag.Bool("chaos.no-clocks", false, "do not set clocks")
	noMoves      = flag.Bool("chaos.no-moves", false, "do not change the topology")
)

// program is the cellplane under test.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(hubManagerEnv) != "" {
		if err := runHubManager(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.ProgramMain(m, &program)
}

// TestChaos disturbs one federation with one seed after the other.
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
		for _, f := range failovers {
			if !f.quick && !*allFailovers {
				continue
			}
			if !t.Run(fmt.Sprintf("failover-%d/%s", seed, f.name), func(t *testing.T) { f.run(t, w, seed) }) && *runs > 1 {
				t.Fatalf("replay with: make chaos ARGS='-chaos.seed=%d -test.run=TestChaos/failover-%d' (the seed decides which cell)", seed, seed)
			}
		}
	}
}

const (
	// longRun is the shortest duration in which a hub manager is paused until it loses its lease.
	longRun = 30 * time.Second
	// repertoireWithin bounds the time that a run takes beyond its duration until each disturbance has happened once.
	repertoireWithin = 3 * time.Minute
)

// disturb runs the nemesis while clients work, until each disturbance has happened at least once, and checks the history.
func disturb(t *testing.T, w *world, seed uint64) {
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // it must be reproducible
	h := newHistory()
	c, err := w.newClients(h)
	if err != nil {
		t.Fatal(err)
	}
	informed, stopInformer := context.WithCancel(t.Context())
	defer stopInformer()
	s, err := newSteady(informed, w.through(w.parts.addresses[len(w.parts.addresses)-1]), 12)
	if err != nil {
		t.Fatal(err)
	}
	n := &nemesis{
		random: random, hub: w.hub, processes: w.federation.Processes, cells: []string{"cell-a", "cell-b", "cell-c"},
		links: w.links, kills: !*noKills, moves: !*noMoves, cuts: !*noCuts,
		clocks: !*noClocks && wallclock.Supported,
	}
	if *duration >= longRun {
		n.longest = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), *duration+repertoireWithin)
	defer cancel()
	var group sync.WaitGroup
	for i := range *workers {
		own := rand.New(rand.NewPCG(seed, uint64(i)+2)) //nolint:gosec // as above
		group.Go(func() { c.run(ctx, i, own) })
	}
	group.Go(func() { s.run(ctx) })
	missing := n.run(ctx, *duration)
	cancel()
	group.Wait()
	if len(missing) > 0 {
		t.Errorf("disturbances that did not happen: %s", strings.Join(missing, ", "))
	}

	if err := w.heal(t.Context(), n); err != nil {
		t.Errorf("after %s: %v", strings.Join(n.did, "; "), err)
	}
	if err := w.verify(t.Context()); err != nil {
		t.Errorf("after %s: %v", strings.Join(n.did, "; "), err)
	}
	readAll(t, c, h)
	testenv.Eventually(t, "the informer is up to date", func(context.Context) (bool, error) {
		lag := s.lags()
		return lag == "", fmt.Errorf("%s", lag)
	})
	check(t, c, h, s, n)
	if err := n.leaveTwo(t.Context()); err != nil {
		t.Fatal(err)
	}
	deleteAll(t, c)
}

// readAll reads each object through each gateway.
func readAll(t *testing.T, c *clients, h *history) {
	t.Helper()
	for _, key := range c.all() {
		for j, gateway := range c.gateways {
			q := question{verb: read, key: key, gateway: gateway}
			testenv.Eventually(t, q.key+" can be read", func(ctx context.Context) (bool, error) {
				a := h.ask(100+j, q, func() (answer, bool) {
					a, _, counts := c.send(ctx, q, "")
					return a, counts
				})
				return a.outcome != unknown, nil
			})
		}
	}
}

// check checks the recorded history, and what the clients and the informer have seen.
func check(t *testing.T, c *clients, h *history, s *steady, n *nemesis) {
	t.Helper()
	t.Logf("%d operations, %v; the informer listed %d times; nemesis: %s; in order: %s", len(h.operations), c.count, s.lists, n.summary(), strings.Join(n.did, "; "))
	s.mu.Lock()
	for _, wrong := range s.wrong {
		t.Errorf("the informer: %s", wrong)
	}
	s.mu.Unlock()
	checkHistory(t, c, h)
}

// checkHistory checks what clients have seen.
func checkHistory(t *testing.T, c *clients, h *history) {
	t.Helper()
	for _, strange := range c.strange {
		t.Errorf("unexpected answer: %s", strange)
	}
	switch result, part := h.check(time.Minute); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Logf("the history of a key could not be checked in time:\n%s", describe(part))
	default:
		t.Errorf("not linearizable:\n%s", describe(part))
	}
}

// deleteAll deletes the objects of a run.
func deleteAll(t *testing.T, c *clients) {
	t.Helper()
	for _, namespace := range c.namespaces {
		testenv.Eventually(t, namespace+" is empty", func(ctx context.Context) (bool, error) {
			if _, err := c.collection(ctx, http.MethodDelete, namespace); err != nil {
				return false, err
			}
			left, err := c.list(ctx, namespace)
			return len(left) == 0, err
		})
	}
}
