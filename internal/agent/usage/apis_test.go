package usage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/autoscale"
)

// adapters serve both APIs. That of external metrics hangs.
type adapters struct{}

func (adapters) RoundTrip(r *http.Request) (*http.Response, error) {
	body := `{"items": [{"describedObject": {"name": "web"}, "value": "12"}]}`
	switch {
	case r.URL.Path == "/apis/"+customGroup, r.URL.Path == "/apis/"+externalGroup:
		body = `{"versions": [{"version": "v1beta1"}]}`
	case strings.HasPrefix(r.URL.Path, "/apis/"+externalGroup):
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewBufferString(body)), Request: r}, nil
}

// TestHangingAdapter checks that an adapter that does not answer takes nothing from the other one, however many metrics it is asked for, and no more than its time.
func TestHangingAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, err := newValues(&rest.Config{Host: "http://member", Transport: adapters{}})
		if err != nil {
			t.Fatal(err)
		}
		hangs := make(chan struct{})
		defer close(hangs)
		v.kinds.mapper = &mapper{hangs: hangs}
		hits := question{namespace: "demo", Metric: autoscale.Metric{Name: "hits", Object: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "demo"}}}
		unmapped := question{namespace: "demo", Metric: autoscale.Metric{Name: "hits", Object: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "web"}}}
		questions := map[question]bool{hits: true, unmapped: true}
		for i := range 5 * askedAtOnce {
			questions[question{namespace: "noisy", Metric: autoscale.Metric{Name: fmt.Sprintf("queue-%d", i), External: true}}] = true
		}
		began := time.Now()
		answers := v.ask(t.Context(), questions)
		if took := time.Since(began); took != answerTime {
			t.Errorf("it took %s", took)
		}
		for q := range questions {
			a, answered := answers[q]
			switch {
			case !answered:
				t.Errorf("%s has no answer", q.Metric)
			case q == hits && (a.err != nil || a.value != 12_000):
				t.Errorf("the answer of the other API is %+v", a)
			case q != hits && !errors.Is(a.err, errNoAnswer):
				t.Errorf("%s: the error is %v", q.Metric, a.err)
			}
		}
	})
}

// TestInTurn checks that a namespace with many questions does not come before another one.
func TestInTurn(t *testing.T) {
	var questions []question
	for i := range 100 {
		questions = append(questions, question{namespace: "noisy", Metric: autoscale.Metric{Name: fmt.Sprint(i)}})
	}
	questions = append(questions, question{namespace: "other"}, question{namespace: "another"})
	turns := inTurn(questions)
	seen, first := map[question]bool{}, map[string]bool{}
	for i, q := range turns {
		if seen[q] = true; i < 3 {
			first[q.namespace] = true
		}
	}
	if len(turns) != len(questions) || len(seen) != len(questions) || len(first) != 3 {
		t.Errorf("%d questions, %d different, and first those of %v", len(turns), len(seen), first)
	}
}

// mapper knows no kind, or fails otherwise. It counts how often it is asked.
type mapper struct {
	meta.RESTMapper
	asked atomic.Int32
	fails error
	hangs <-chan struct{}
}

func (m *mapper) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	m.asked.Add(1)
	if m.hangs != nil {
		<-m.hangs
	}
	if m.fails != nil {
		return nil, m.fails
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// TestUnknownKinds checks that a kind that the cluster does not have costs one discovery a minute, and another failure one in a round.
func TestUnknownKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mapper{}
		k := &kinds{mapper: m}
		for range 10 {
			if _, err := k.resource(t.Context(), schema.GroupKind{Kind: "Unknown"}); !meta.IsNoMatchError(err) {
				t.Errorf("the error is %v", err)
			}
		}
		if n := m.asked.Load(); n != 1 {
			t.Errorf("the cluster was asked %d times", n)
		}
		time.Sleep(lookupTime + time.Second)
		m.fails = errors.New("no connection")
		for range 2 {
			for range 2 {
				if _, err := k.resource(t.Context(), schema.GroupKind{Kind: "Unknown"}); !errors.Is(err, m.fails) {
					t.Errorf("the error is %v", err)
				}
			}
			time.Sleep(answerTime + time.Second)
		}
		if n := m.asked.Load(); n != 3 {
			t.Errorf("the cluster was asked %d times", n)
		}
	})
}
