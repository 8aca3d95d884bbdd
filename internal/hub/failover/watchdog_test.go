package failover

import (
	"testing"
	"time"
)

func TestWatchdog(t *testing.T) {
	type probe struct {
		second    int
		answering []string
		silent    []string
		failed    int
		want      string
	}
	for _, test := range []struct {
		name   string
		after  time.Duration
		probes []probe
	}{
		{"off", 0, []probe{{0, []string{"a"}, []string{"b"}, 0, ""}, {1000, []string{"a"}, []string{"b"}, 0, ""}}},
		{"unreachable for long enough", time.Minute, []probe{{0, []string{"a"}, []string{"b"}, 0, ""}, {59, []string{"a"}, []string{"b"}, 0, ""}, {60, []string{"a"}, []string{"b"}, 0, "b"}}},
		{"answers in between", time.Minute, []probe{{0, []string{"a"}, []string{"b"}, 0, ""}, {59, []string{"a", "b"}, nil, 0, ""}, {60, []string{"a"}, []string{"b"}, 0, ""}, {119, []string{"a"}, []string{"b"}, 0, ""}, {120, []string{"a"}, []string{"b"}, 0, "b"}}},
		{"two at once may be a local fault", time.Minute, []probe{{0, []string{"a"}, []string{"b", "c"}, 0, ""}, {90, []string{"a"}, []string{"b", "c"}, 0, ""}, {91, []string{"a", "c"}, []string{"b"}, 0, ""}, {150, []string{"a", "c"}, []string{"b"}, 0, ""}, {151, []string{"a", "c"}, []string{"b"}, 0, "b"}}},
		{"a local outage ends during a probe", time.Minute, []probe{{0, nil, []string{"a", "b"}, 0, ""}, {90, []string{"b"}, []string{"a"}, 0, ""}, {91, []string{"a", "b"}, nil, 0, ""}}},
		{"one after the other", time.Minute, []probe{{0, []string{"a"}, []string{"b"}, 0, ""}, {50, []string{"b"}, []string{"a"}, 0, ""}, {100, []string{"a"}, []string{"b"}, 0, ""}}},
		{"nobody answers", time.Minute, []probe{{0, nil, []string{"a"}, 0, ""}, {90, nil, []string{"a"}, 0, ""}}},
		{"one has failed already", time.Minute, []probe{{0, []string{"a"}, []string{"b"}, 1, ""}, {90, []string{"a"}, []string{"b"}, 1, ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dog := Watchdog{After: test.after}
			for _, l := range test.probes {
				got := dog.See(time.Unix(int64(l.second), 0), Sighting{Answering: l.answering, Silent: l.silent, Failed: l.failed})
				if got != l.want {
					t.Fatalf("after %d s got %q, want %q", l.second, got, l.want)
				}
			}
		})
	}
}
