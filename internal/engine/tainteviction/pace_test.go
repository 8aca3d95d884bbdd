package tainteviction

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// clusters returns the clusters of a region, some of which fail.
func clusters(region string, all, failing int) []*clusterv1alpha1.Cluster {
	list := make([]*clusterv1alpha1.Cluster, all)
	for i := range list {
		status := metav1.ConditionTrue
		if i < failing {
			status = metav1.ConditionUnknown
		}
		list[i] = &clusterv1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", region, i)},
			Spec:       clusterv1alpha1.ClusterSpec{Region: region},
			Status:     clusterv1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: names.ClusterReady, Status: status}}},
		}
	}
	return list
}

func TestRateFollowsDisruption(t *testing.T) {
	rates := Rates{Normal: 100, Disrupted: 1}
	for _, test := range []struct {
		name              string
		east, failingEast int
		west, failingWest int
		want              float64 // in region east
		wantWest          float64
	}{
		{"all healthy", 10, 0, 10, 0, 100, 100},
		{"one failing", 10, 1, 10, 0, 100, 100},
		{"the only cluster of a region", 1, 1, 10, 0, 100, 100},
		{"one of two clusters", 1, 1, 1, 0, 100, 100},
		{"both of two clusters", 1, 1, 1, 1, 0, 0},
		{"half of a region", 10, 5, 20, 0, 100, 100},
		{"most of a large region", 10, 6, 20, 0, 1, 100},
		{"most of a small region", 5, 3, 20, 0, 0, 100},
		{"a whole region", 10, 10, 20, 0, 1, 100},
		{"a whole small region", 3, 3, 20, 0, 1, 100},
		{"most clusters", 10, 10, 10, 2, 0, 0},
		{"everything", 10, 10, 10, 10, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := observe(append(clusters("east", test.east, test.failingEast), clusters("west", test.west, test.failingWest)...))
			if got := s.rate("east", rates); got != test.want {
				t.Errorf("rate of east = %v, want %v", got, test.want)
			}
			if got := s.rate("west", rates); got != test.wantWest {
				t.Errorf("rate of west = %v, want %v", got, test.wantWest)
			}
		})
	}
}

// TestRateIsMonotone checks that more failing clusters never raise the rate, and that it is zero if all clusters
// fail.
func TestRateIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		east, west := rapid.IntRange(1, 60).Draw(t, "east"), rapid.IntRange(0, 60).Draw(t, "west")
		failingWest := rapid.IntRange(0, west).Draw(t, "failing west")
		rates := Rates{Normal: 100, Disrupted: 1}
		last := rates.Normal
		for failing := 0; failing <= east; failing++ {
			s := observe(append(clusters("east", east, failing), clusters("west", west, failingWest)...))
			now := s.rate("east", rates)
			// A small region is evacuated slowly when it fails as a whole, but not when most of it fails: only in
			// the latter case it can recover by itself.
			if now > last && failing != east {
				t.Fatalf("with %d of %d failing the rate rose from %v to %v", failing, east, last, now)
			}
			last = now
		}
		if s := observe(append(clusters("east", east, east), clusters("west", west, west)...)); s.rate("east", rates) != 0 {
			t.Fatal("evictions continue although all clusters fail")
		}
	})
}

// TestReservations checks that reserved times keep the rate, and that a stop invalidates reservations.
func TestReservations(t *testing.T) {
	p := newPace(Rates{Normal: 10, Disrupted: 1})
	healthy := clusters("east", 10, 1)
	p.adapt(healthy)
	start := time.Unix(1_000_000, 0)
	lost := healthy[0]
	var slots []slot
	for range 110 {
		s, ok := p.reserve(lost, slot{}, start)
		if !ok {
			t.Fatal("evictions are stopped")
		}
		slots = append(slots, s)
	}
	if first, last := slots[9].at, slots[109].at; first.After(start) || last.Sub(start) < 9900*time.Millisecond || last.Sub(start) > 10100*time.Millisecond {
		t.Errorf("reservation 10 is at %v and reservation 110 at %v, want 0 and 10s", first.Sub(start), last.Sub(start))
	}
	if again, _ := p.reserve(lost, slots[109], start.Add(time.Second)); again != slots[109] {
		t.Errorf("a reservation changed from %v to %v", slots[109], again)
	}

	p.adapt(clusters("east", 10, 10))
	if _, ok := p.reserve(lost, slots[109], start.Add(time.Second)); ok {
		t.Error("evictions continue although all clusters fail")
	}
	p.adapt(append(clusters("east", 10, 10), clusters("west", 30, 0)...))
	slow := start.Add(2 * time.Second)
	for i := range 3 {
		s, ok := p.reserve(lost, slots[109], slow)
		if want := slow.Add(time.Duration(i) * time.Second); !ok || !s.at.Equal(want) {
			t.Errorf("reservation %d in a disrupted region is at %v, want %v", i, s.at.Sub(slow), want.Sub(slow))
		}
	}
	// Evictions from healthy clusters use the normal rate.
	if s, ok := p.reserve(clusters("west", 1, 0)[0], slot{}, slow); !ok || !s.at.Equal(slow) {
		t.Errorf("the eviction from a healthy cluster is at %v", s.at)
	}
}
