package autoscale

import (
	"math"
	"testing"
)

// tenth is the default tolerance.
var tenth = tolerance{0.1, 0.1}

// measured returns the sums of pods that request 100 each and use the given amount on average.
func measured(pods int32, average int64) Sums {
	return Sums{Measured: pods, Usage: int64(pods) * average, Requests: int64(pods) * 100}
}

func (s Sums) unready(pods int32) Sums {
	return s.Add(Sums{Unready: pods, UnreadyRequests: int64(pods) * 100})
}

func TestUtilizationReplicas(t *testing.T) {
	for _, c := range []struct {
		name            string
		sums            Sums
		target, current int32
		want            int32
		wantUtilization int32
		wantError       string
	}{
		{name: "up", sums: measured(4, 90), target: 60, current: 4, want: 6, wantUtilization: 90},
		{name: "down", sums: measured(4, 30), target: 60, current: 4, want: 2, wantUtilization: 30},
		{name: "rounded up", sums: measured(4, 31), target: 60, current: 4, want: 3, wantUtilization: 31},
		{name: "tolerated above", sums: measured(10, 88), target: 80, current: 10, want: 10, wantUtilization: 88},
		{name: "tolerated below", sums: measured(10, 72), target: 80, current: 10, want: 10, wantUtilization: 72},
		{name: "just not tolerated", sums: measured(10, 89), target: 80, current: 10, want: 12, wantUtilization: 89},
		{name: "fewer pods than replicas", sums: measured(4, 90), target: 60, current: 8, want: 6, wantUtilization: 90},

		{name: "up, unready count as idle", sums: measured(4, 90).unready(2), target: 30, current: 6, want: 12, wantUtilization: 90},
		{name: "up, unready absorb it", sums: measured(4, 90).unready(4), target: 60, current: 8, want: 8, wantUtilization: 90},
		{name: "down, unready do not count", sums: measured(4, 30).unready(4), target: 60, current: 8, want: 2, wantUtilization: 30},

		{name: "up, missing count as idle", sums: measured(4, 90).Add(Unknown(2, 100)), target: 30, current: 6, want: 12, wantUtilization: 90},
		{name: "down, missing count as busy", sums: measured(8, 10).Add(Unknown(2, 100)), target: 80, current: 10, want: 4, wantUtilization: 10},
		{name: "down, missing turn it", sums: measured(4, 30).Add(Unknown(8, 100)), target: 60, current: 12, want: 12, wantUtilization: 30},
		{name: "down, missing use a target above the request", sums: measured(5, 100).Add(Unknown(5, 100)), target: 200, current: 10, want: 8, wantUtilization: 100},
		{name: "missing are rounded per pod", sums: measured(1, 50).Add(Unknown(99, 1)), target: 199, current: 100, want: 38, wantUtilization: 50},
		{name: "at the target, with missing", sums: measured(4, 60).Add(Unknown(4, 100)), target: 60, current: 8, want: 8, wantUtilization: 60},

		{name: "nothing measured", sums: Unknown(4, 100).unready(1), target: 60, current: 5, wantError: "no metrics of ready pods"},
		{name: "no request", sums: measured(4, 90).Add(Sums{WithoutRequest: 1}), target: 60, current: 5, wantError: "there are pods that do not request the resource"},
		{name: "requests of zero", sums: Sums{Measured: 1, Usage: 5}, target: 60, current: 5, wantError: "all pods with metrics request none of the resource"},
		{name: "no target", sums: measured(4, 90), current: 5, wantError: "the target must be positive"},

		{name: "more than 64 bits", sums: Sums{Measured: 100_000, Usage: 100_000 << 30 * 1000, Requests: 50_000 << 30 * 1000}, target: 100, current: 100_000, want: 200_000, wantUtilization: 200},
		{name: "more than 32 bits", sums: Sums{Measured: 1000, Usage: math.MaxInt64, Requests: 1}, target: 1, current: 1000, want: math.MaxInt32, wantUtilization: math.MaxInt32},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, utilization, _, err := utilizationReplicas(c.sums, c.target, c.current, tenth)
			if got != c.want || utilization != c.wantUtilization || message(err) != c.wantError {
				t.Errorf("got %d replicas, %d %% and %q, want %d, %d %% and %q", got, utilization, message(err), c.want, c.wantUtilization, c.wantError)
			}
		})
	}
}

func TestAverageReplicas(t *testing.T) {
	for _, c := range []struct {
		name      string
		sums      Sums
		target    int64
		want      int32
		wantError string
	}{
		{name: "up", sums: measured(4, 90), target: 60, want: 6},
		{name: "down", sums: measured(4, 30), target: 60, want: 2},
		{name: "tolerated", sums: measured(4, 62), target: 60, want: 4},
		{name: "negative", sums: measured(4, -30), target: 60, want: -2},
		{name: "up, missing count as idle", sums: measured(3, 90).Add(Unknown(1, 0)), target: 30, want: 9},
		{name: "down, missing use the target", sums: measured(2, 10).Add(Unknown(2, 0)), target: 100, want: 3},
		{name: "up, unready count as idle", sums: measured(3, 90).unready(1), target: 30, want: 9},
		{name: "up, but fewer than now", sums: measured(1, 70).unready(1), target: 30, want: 4},
		{name: "nothing measured", sums: Unknown(4, 0), target: 60, wantError: "no metrics of ready pods"},
		{name: "no target", sums: measured(4, 90), wantError: "the target must be positive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, average, err := averageReplicas(c.sums, c.target, 4, tenth)
			if got != c.want || message(err) != c.wantError || (err == nil && average != c.sums.Usage/int64(c.sums.Measured)) {
				t.Errorf("got %d replicas, %d and %q, want %d and %q", got, average, message(err), c.want, c.wantError)
			}
		})
	}
}

func TestValueReplicas(t *testing.T) {
	for _, c := range []struct {
		name          string
		value, target int64
		pods          Pods
		want          int32
		wantError     string
	}{
		{name: "up", value: 300, target: 100, pods: Pods{Total: 4, Ready: 4}, want: 12},
		{name: "down", value: 50, target: 100, pods: Pods{Total: 4, Ready: 4}, want: 2},
		{name: "tolerated", value: 105, target: 100, want: 4},
		{name: "unready", value: 300, target: 100, pods: Pods{Total: 4, Ready: 1}, want: 3},
		{name: "up, unknown may be unready", value: 300, target: 100, pods: Pods{Total: 2, Ready: 2, Unknown: 2}, want: 6},
		{name: "up, the current replicas are possible", value: 150, target: 100, pods: Pods{Total: 2, Ready: 2, Unknown: 2}, want: 4},
		{name: "down, unknown may be ready", value: 50, target: 100, pods: Pods{Total: 2, Ready: 2, Unknown: 2}, want: 2},
		{name: "all unknown", value: 50, target: 100, pods: Pods{Unknown: 4}, want: 2},
		{name: "no pods", value: 50, target: 100, wantError: "the workload has no pods"},
		{name: "no target", value: 50, pods: Pods{Total: 4, Ready: 4}, wantError: "the target must be positive"},
		{name: "too many", value: math.MaxInt64, target: 1, pods: Pods{Total: 4, Ready: 4}, want: math.MaxInt32},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := valueReplicas(c.value, c.target, c.pods, 4, tenth); got != c.want || message(err) != c.wantError {
				t.Errorf("got %d and %q, want %d and %q", got, message(err), c.want, c.wantError)
			}
		})
	}
}

func TestPerPodReplicas(t *testing.T) {
	for _, c := range []struct {
		name          string
		value, target int64
		current       int32
		want          int32
		wantAverage   int64
		wantError     string
	}{
		{name: "up", value: 501, target: 100, current: 4, want: 6, wantAverage: 126},
		{name: "down", value: 100, target: 100, current: 4, want: 1, wantAverage: 25},
		{name: "tolerated", value: 430, target: 100, current: 4, want: 4, wantAverage: 108},
		{name: "nothing runs", value: 430, target: 100, want: 5, wantAverage: 430},
		{name: "negative", value: -430, target: 100, current: 4, want: -4, wantAverage: -107},
		{name: "too many", value: math.MaxInt64, target: 1, current: 1, want: math.MaxInt32, wantAverage: math.MaxInt64},
		{name: "no target", value: 430, current: 4, wantError: "the target must be positive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, average, err := perPodReplicas(c.value, c.target, c.current, tenth); got != c.want || average != c.wantAverage || message(err) != c.wantError {
				t.Errorf("got %d, %d and %q, want %d, %d and %q", got, average, message(err), c.want, c.wantAverage, c.wantError)
			}
		})
	}
}

func TestBounded(t *testing.T) {
	for _, c := range []struct{ got, want int64 }{
		{add(math.MaxInt64, 1), math.MaxInt64},
		{add(math.MinInt64, -1), math.MinInt64},
		{add(math.MaxInt64, math.MinInt64), -1},
		{share(7, 100, 3), 233},
		{share(-7, 100, 3), -233},
		{share(math.MaxInt64, 100, 100), math.MaxInt64},
		{share(math.MaxInt64, 100, 99), math.MaxInt64},
		{share(math.MinInt64, 100, 1), -math.MaxInt64},
		{Total([]int64{1, math.MaxInt64, 5}), math.MaxInt64},
		{int64(count(math.Inf(1))), math.MaxInt32},
		{int64(count(2.1)), 3},
		{int64(count(-1e12)), math.MinInt32},
	} {
		if c.got != c.want {
			t.Errorf("got %d, want %d", c.got, c.want)
		}
	}
}
