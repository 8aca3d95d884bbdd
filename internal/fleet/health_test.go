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

// However long a member was gone, who waits for it is told within one probe of its return, and it is not asked more
// often than that meanwhile.
func TestReturnOfAMember(t *testing.T) {
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
			told := make(chan time.Time, 1)
			m.OnRecovery(func() { told <- time.Now() })
			m.Report(errors.New("the request was refused"))
			if m.Broken() != nil {
				t.Errorf("a member that refuses a request counts as gone: %v", m.Broken())
			}

			down.Store(true)
			for range 3 {
				m.Report(gone) // many requests fail together
			}
			<-time.After(outage)
			if !errors.Is(m.Broken(), gone) {
				t.Errorf("after %v it counts as there", outage)
			}
			down.Store(false)
			back := time.Now()
			if took := (<-told).Sub(back); took > probeInterval {
				t.Errorf("after %v it took %v to notice its return", outage, took)
			}
			if most := int64(outage/probeInterval) + 1; probes.Load() > most {
				t.Errorf("it was asked %d times in %v", probes.Load(), outage)
			}
			if m.Broken() != nil || m.Wait(ctx) != nil {
				t.Errorf("it is back and counts as gone: %v", m.Broken())
			}
		})
	}
}

// That a member cannot serve one request does not mean that it cannot serve others: it is asked before it counts as gone.
func TestPartOfAMemberIsGone(t *testing.T) {
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
		returned := 0
		m.OnRecovery(func() { returned++ })
		answers(nil)
		for range 3 {
			m.Report(unavailable)
		}
		synctest.Wait()
		if m.Broken() != nil || m.Wait(ctx) != nil || probes.Load() != 1 {
			t.Errorf("it was asked %d times, answered, and counts as gone: %v", probes.Load(), m.Broken())
		}
		time.Sleep(time.Hour)
		if returned != 0 || probes.Load() != 1 {
			t.Errorf("who was never gone returned %d times and was asked %d times", returned, probes.Load())
		}

		answers(unavailable) // as from a proxy before a member that is gone
		m.Report(unavailable)
		synctest.Wait()
		if !errors.Is(m.Broken(), unavailable) {
			t.Error("a member that serves nothing counts as there")
		}
		answers(nil)
		time.Sleep(2 * probeInterval)
		if m.Broken() != nil || returned != 1 {
			t.Errorf("it returned %d times: %v", returned, m.Broken())
		}
	})
}
