package fleet

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// However long a member was unreachable, its recovery is noticed within one probe interval, and it is not probed more often.
func TestRecovery(t *testing.T) {
	gone := &url.Error{Op: "Get", URL: "https://member", Err: errors.New("connection refused")}
	for _, outage := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var down atomic.Bool
			var probes atomic.Int64
			m := &Member{ctx: ctx, health: newHealth(func(context.Context) error {
				probes.Add(1)
				if down.Load() {
					return gone
				}
				return nil
			})}
			recovered := make(chan time.Time, 1)
			m.OnRecovery(func() { recovered <- time.Now() })
			m.Report(errors.New("the request was refused"))
			if m.Broken() != nil {
				t.Errorf("a member that refuses a request counts as unreachable: %v", m.Broken())
			}

			down.Store(true)
			for range 3 {
				m.Report(gone) // many requests fail together
			}
			<-time.After(outage)
			if !errors.Is(m.Broken(), gone) {
				t.Errorf("after %v it counts as reachable", outage)
			}
			down.Store(false)
			back := time.Now()
			if took := (<-recovered).Sub(back); took > probeInterval {
				t.Errorf("after %v it took %v to notice its recovery", outage, took)
			}
			if most := int64(outage/probeInterval) + 1; probes.Load() > most {
				t.Errorf("it was probed %d times in %v", probes.Load(), outage)
			}
			if m.Broken() != nil || m.Wait(ctx) != nil {
				t.Errorf("it is back and counts as unreachable: %v", m.Broken())
			}
		})
	}
}

// A member that fails one request may serve others: it is probed before it counts as unreachable.
func TestPartlyUnavailable(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("the API comes from elsewhere")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var state atomic.Pointer[error]
		answers := func(err error) { state.Store(&err) }
		var probes atomic.Int64
		m := &Member{ctx: ctx, health: newHealth(func(context.Context) error {
			probes.Add(1)
			return *state.Load()
		})}
		recoveries := 0
		m.OnRecovery(func() { recoveries++ })
		answers(nil)
		for range 3 {
			m.Report(unavailable)
		}
		synctest.Wait()
		if m.Broken() != nil || m.Wait(ctx) != nil || probes.Load() != 1 {
			t.Errorf("it was probed %d times, answered, and counts as unreachable: %v", probes.Load(), m.Broken())
		}
		time.Sleep(time.Hour)
		if recoveries != 0 || probes.Load() != 1 {
			t.Errorf("a member that was never unreachable recovered %d times and was probed %d times", recoveries, probes.Load())
		}

		answers(unavailable) // as from a proxy in front of an unreachable member
		m.Report(unavailable)
		synctest.Wait()
		if !errors.Is(m.Broken(), unavailable) {
			t.Error("a member that serves nothing counts as reachable")
		}
		answers(nil)
		time.Sleep(2 * probeInterval)
		if m.Broken() != nil || recoveries != 1 {
			t.Errorf("it recovered %d times: %v", recoveries, m.Broken())
		}
	})
}
