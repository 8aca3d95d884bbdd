package election_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/election"
	"github.com/cellplane/cellplane/internal/testenv"
)

// patient is for tests in which nothing expires.
var patient = election.Timing{LeaseDuration: 5 * time.Minute, RenewDeadline: 4 * time.Minute, RetryPeriod: 50 * time.Millisecond}

// TestLeaseIsHeldWhileTheLeaderStops ends a leader that takes a while to stop. The Lease is renewed until it has, and released then.
func TestLeaseIsHeldWhileTheLeaderStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient)
	ctx, cancel := context.WithCancel(t.Context())
	var stopped atomic.Bool
	began := make(chan struct{})
	first := run(ctx, w.candidate(t, "first", nil), func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		ended := w.lease(t).renewed
		testenv.Eventually(t, "the Lease is renewed by a leader that stops", func(context.Context) (bool, error) {
			lease := w.lease(t)
			return lease.holder != "first" || lease.renewed.After(ended), nil
		})
		if holder := w.lease(t).holder; holder != "first" {
			t.Errorf("the Lease is held by %q while the first leader stops", holder)
		}
		stopped.Store(true)
		return errors.New("an error at the end")
	})
	<-began
	leading, end := context.WithCancel(t.Context())
	second := run(leading, w.candidate(t, "second", nil), func(context.Context) error {
		if !stopped.Load() {
			t.Error("two replicas lead")
		}
		return errors.New("enough")
	})
	cancel()
	if err := <-first; err != nil {
		t.Errorf("the first ended with %v", err)
	}
	if err := <-second; err == nil || err.Error() != "enough" {
		t.Errorf("the second ended with %v", err)
	}
	if holder := w.lease(t).holder; holder != "" {
		t.Errorf("the Lease of a leader that failed is held by %q", holder)
	}
	end()
	if err := <-run(leading, w.candidate(t, "late", nil), func(context.Context) error { return errors.New("led") }); err != nil {
		t.Errorf("a candidate whose context has ended: %v", err)
	}
}

// TestLostLease gives the Lease to somebody else. The leader stops, and leaves it alone.
func TestLostLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, election.Timing{LeaseDuration: 10 * time.Second, RenewDeadline: time.Second, RetryPeriod: 50 * time.Millisecond})
	err := <-run(t.Context(), w.candidate(t, "first", nil), func(ctx context.Context) error {
		testenv.Eventually(t, "the Lease is taken", func(ctx context.Context) (bool, error) {
			lease, err := w.client.CoordinationV1().Leases(w.namespace).Get(ctx, "lease", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To("thief"), ptr.To(metav1.NowMicro())
			lease.Spec.LeaseDurationSeconds = ptr.To[int32](600)
			_, err = w.client.CoordinationV1().Leases(w.namespace).Update(ctx, lease, metav1.UpdateOptions{})
			return err == nil, err
		})
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, election.ErrLost) {
		t.Errorf("the leader ended with %v", err)
	}
	if holder := w.lease(t).holder; holder != "thief" {
		t.Errorf("the Lease is held by %q", holder)
	}
}

// TestLeaderStopsBeforeTheLeaseEnds lets all requests of the leader hang. It stops at the deadline, before another replica leads.
func TestLeaderStopsBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, election.Timing{LeaseDuration: 4 * time.Second, RenewDeadline: 2500 * time.Millisecond, RetryPeriod: 100 * time.Millisecond})
	var hang, leads atomic.Bool
	began := make(chan struct{})
	first := run(t.Context(), w.candidate(t, "first", &hang), func(ctx context.Context) error {
		leads.Store(true)
		close(began)
		<-ctx.Done()
		leads.Store(false)
		return nil
	})
	<-began
	hang.Store(true)
	second := run(t.Context(), w.candidate(t, "second", nil), func(context.Context) error {
		if leads.Load() {
			t.Error("two replicas lead")
		}
		return errors.New("enough")
	})
	if err := <-second; err == nil || err.Error() != "enough" {
		t.Errorf("the second ended with %v", err)
	}
	if err := <-first; !errors.Is(err, election.ErrLost) {
		t.Errorf("the first ended with %v, want %v", err, election.ErrLost)
	}
}

// world is a namespace for a Lease on a real API server.
type world struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	timing    election.Timing
}

func newWorld(t *testing.T, timing election.Timing) *world {
	t.Helper()
	plane := testenv.SharedAPIServer(t)
	return &world{config: plane.RESTConfig(), client: plane.Client(t), namespace: plane.Namespace(t), timing: timing}
}

// candidate returns a candidate whose requests hang while hang is set.
func (w *world) candidate(t *testing.T, identity string, hang *atomic.Bool) *election.Candidate {
	t.Helper()
	config := rest.CopyConfig(w.config)
	config.QPS = -1
	if hang != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &hanging{next, hang} })
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	candidate, err := election.New(election.Lease{Client: client.CoordinationV1(), Namespace: w.namespace, Name: "lease", Identity: identity, Timing: w.timing})
	if err != nil {
		t.Fatal(err)
	}
	return candidate
}

type hanging struct {
	http.RoundTripper
	hang *atomic.Bool
}

func (h *hanging) RoundTrip(request *http.Request) (*http.Response, error) {
	if h.hang.Load() && strings.Contains(request.URL.Path, "/leases/") {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	return h.RoundTripper.RoundTrip(request)
}

func run(ctx context.Context, candidate *election.Candidate, lead func(context.Context) error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- candidate.Run(ctx, lead) }()
	return ended
}

type held struct {
	holder  string
	renewed time.Time
}

func (w *world) lease(t *testing.T) held {
	t.Helper()
	lease, err := w.client.CoordinationV1().Leases(w.namespace).Get(context.WithoutCancel(t.Context()), "lease", metav1.GetOptions{})
	if err != nil {
		t.Error(err)
		return held{}
	}
	return held{ptr.Deref(lease.Spec.HolderIdentity, ""), ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time}
}
