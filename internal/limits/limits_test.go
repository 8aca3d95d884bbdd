package limits_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/limits"
)

func TestOwners(t *testing.T) {
	for _, test := range []struct {
		user   user.DefaultInfo
		name   string
		exempt bool
	}{
		{user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}}, "alice", false},
		{user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}}, "root", true},
		{user.DefaultInfo{Name: "system:cellplane:engine:cell-a"}, "system:cellplane:engine:cell-a", true},
		{user.DefaultInfo{Name: "system:kube-controller-manager"}, "system:kube-controller-manager", true},
		{user.DefaultInfo{Name: "system:cellplanes"}, "system:cellplanes", false},
		{user.DefaultInfo{Name: "x-system:cellplane:engine"}, "x-system:cellplane:engine", false},
		{user.DefaultInfo{Name: "system:node:a"}, "system:node:a", false},
		{user.DefaultInfo{Name: "system:serviceaccount:team:a"}, "system:serviceaccounts:team", false},
		{user.DefaultInfo{Name: "system:serviceaccount:team:b"}, "system:serviceaccounts:team", false},
		{user.DefaultInfo{Name: "system:serviceaccount:kube-system:generic-garbage-collector"}, "system:serviceaccounts:kube-system", true},
		{user.DefaultInfo{Name: "system:serviceaccount:broken"}, "system:serviceaccount:broken", false},
	} {
		if got := limits.OwnerOf(&test.user); got.Name != test.name || got.Exempt != test.exempt {
			t.Errorf("%s is counted as %+v", test.user.Name, got)
		}
	}
	if got := limits.OwnerFrom(context.Background()); got != (limits.Owner{}) {
		t.Errorf("nobody is counted as %+v", got)
	}
}

// TestStreams opens and ends requests at random. The model is a map of counts.
func TestStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 4).Draw(t, "most")
		streams, model := limits.NewStreams(most), map[string]int{}
		var ends []func()
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(ends) > 0 && rapid.Bool().Draw(t, "end") {
				i := rapid.IntRange(0, len(ends)-1).Draw(t, "which")
				ends[i]() // it may have ended before
				continue
			}
			owner := limits.Owner{Name: rapid.SampledFrom([]string{"a", "b", "root"}).Draw(t, "owner")}
			owner.Exempt = owner.Name == "root"
			end, ok := streams.Open(owner)
			if want := most == 0 || owner.Exempt || model[owner.Name] < most; ok != want {
				t.Fatalf("%s has %d of %d and could open one: %v", owner.Name, model[owner.Name], most, ok)
			}
			if !ok {
				continue
			}
			model[owner.Name]++
			ends = append(ends, func() {
				end()
				end = func() {}
				if owner.Name != "" {
					model[owner.Name]--
					owner.Name = ""
				}
			})
		}
		open := 0
		for name, count := range model {
			if streams.Of(name) != count {
				t.Fatalf("%s has %d, want %d", name, streams.Of(name), count)
			}
			open += min(count, 1)
		}
		if streams.Owners() != open {
			t.Fatalf("%d owners are kept, want %d", streams.Owners(), open)
		}
	})
}

// TestEndIsCountedOnce ends a request twice at once.
func TestEndIsCountedOnce(t *testing.T) {
	streams := limits.NewStreams(2)
	first, _ := streams.Open(limits.Owner{Name: "a"})
	if _, ok := streams.Open(limits.Owner{Name: "a"}); !ok {
		t.Fatal("the second request was refused")
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(first)
	}
	both.Wait()
	if streams.Of("a") != 1 {
		t.Errorf("%d requests are open, want 1", streams.Of("a"))
	}
}

const wait = 10 * time.Second

// grow starts to grow a grant and returns a function that reports whether it has been granted; it must be called in a bubble.
func grow(ctx context.Context, g *limits.Grant, bytes int64) func() (done bool, err error) {
	result := make(chan error, 1)
	go func() { result <- g.Grow(ctx, bytes) }()
	return func() (bool, error) {
		synctest.Wait()
		select {
		case err := <-result:
			return true, err
		default:
			return false, nil
		}
	}
}

func mustGrow(t *testing.T, g *limits.Grant, bytes int64) {
	t.Helper()
	if done, err := grow(t.Context(), g, bytes)(); !done || err != nil {
		t.Fatalf("%d bytes were not granted at once: %v", bytes, err)
	}
}

// TestBudget tells the rules one by one.
func TestBudget(t *testing.T) {
	alice, bob, root := limits.Owner{Name: "alice"}, limits.Owner{Name: "bob"}, limits.Owner{Name: "root", Exempt: true}
	for name, run := range map[string]func(t *testing.T, b *limits.Budget){
		"an owner has a quarter, and further requests wait": func(t *testing.T, b *limits.Budget) {
			first, second := b.Open(alice), b.Open(alice)
			mustGrow(t, first, 60)
			granted := grow(t.Context(), second, 60)
			if done, _ := granted(); done {
				t.Fatal("120 of 100 bytes were granted")
			}
			mustGrow(t, b.Open(bob), 60)
			first.Close()
			if done, err := granted(); !done || err != nil {
				t.Fatalf("the freed bytes were not granted: %v", err)
			}
		},
		"the oldest request of an owner never waits": func(t *testing.T, b *limits.Budget) {
			first, second := b.Open(alice), b.Open(alice)
			mustGrow(t, first, 50)
			mustGrow(t, second, 50)
			mustGrow(t, first, 1000)
			granted := grow(t.Context(), second, 1)
			if done, _ := granted(); done {
				t.Fatal("the younger request got bytes beyond the share")
			}
			first.Close() // now the younger one is the oldest
			if done, err := granted(); !done || err != nil {
				t.Fatalf("the request that is now the oldest waits: %v", err)
			}
		},
		"an owner makes progress although others hold everything": func(t *testing.T, b *limits.Budget) {
			for i := range 8 {
				mustGrow(t, b.Open(limits.Owner{Name: fmt.Sprint(i)}), 100)
			}
			first := b.Open(alice)
			mustGrow(t, first, 70)
			if done, _ := grow(t.Context(), b.Open(alice), 10)(); done {
				t.Fatal("a second request was granted bytes that there are not")
			}
		},
		"administrators do not wait": func(t *testing.T, b *limits.Budget) {
			mustGrow(t, b.Open(root), 1000)
			mustGrow(t, b.Open(root), 1000)
			if used := b.Usage(); used.Held != 2000 {
				t.Fatalf("%d bytes are counted, want 2000", used.Held)
			}
		},
		"a wait ends after a time": func(t *testing.T, b *limits.Budget) {
			mustGrow(t, b.Open(alice), 100)
			if err := b.Open(alice).Grow(t.Context(), 1); !errors.Is(err, limits.ErrExhausted) {
				t.Fatalf("got %v", err)
			}
			if used := b.Usage(); used.Refused != 1 || used.Waiting != 0 || used.Held != 100 {
				t.Fatalf("got %+v", used)
			}
		},
		"a wait ends with its request": func(t *testing.T, b *limits.Budget) {
			mustGrow(t, b.Open(alice), 100)
			ctx, cancel := context.WithCancel(t.Context())
			granted := grow(ctx, b.Open(alice), 1)
			_, _ = granted()
			cancel()
			if done, err := granted(); !done || !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v, %v", done, err)
			}
			if used := b.Usage(); used.Refused != 0 || used.Waiting != 0 {
				t.Fatalf("got %+v", used)
			}
		},
		"a closed grant holds nothing": func(t *testing.T, b *limits.Budget) {
			g := b.Open(alice)
			g.Close()
			mustGrow(t, g, 100)
			g.Close()
			if used := b.Usage(); used.Held != 0 {
				t.Fatalf("got %+v", used)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, limits.NewBudget(400, wait)) })
		})
	}
	var none *limits.Grant
	if err := none.Grow(t.Context(), 1<<40); err != nil || none.Held() != 0 {
		t.Error(err)
	}
	none.Shrink(1)
	none.Close()
	unbounded := limits.NewBudget(0, wait)
	for range 3 {
		if err := unbounded.Open(alice).Grow(t.Context(), 1<<40); err != nil {
			t.Error(err)
		}
	}
}

// TestBudgetHolds runs requests that grow, shrink and end at random. Nobody waits for ever, nothing is lost, and what is held exceeds the
// budget by the oldest requests only.
func TestBudgetHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			b := limits.NewBudget(1000, time.Hour)
			var all sync.WaitGroup
			for i := range rapid.IntRange(1, 30).Draw(rt, "requests") {
				owner := limits.Owner{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "owner")}
				steps := rapid.SliceOfN(rapid.Int64Range(-100, 200), 1, 6).Draw(rt, "steps")
				all.Go(func() {
					g := b.Open(owner)
					defer g.Close()
					for _, step := range steps {
						if step < 0 {
							g.Shrink(-step)
						} else if err := g.Grow(context.Background(), step); err != nil {
							t.Errorf("request %d of %s: %v", i, owner.Name, err)
						}
						time.Sleep(time.Second)
					}
				})
			}
			all.Wait()
			used := b.Usage()
			if used.Held != 0 || used.Waiting != 0 {
				t.Errorf("at the end: %+v", used)
			}
			if most := int64(1000 + 3*6*200); used.Most > most {
				t.Errorf("up to %d bytes were held, want at most %d", used.Most, most)
			}
		})
	})
}
