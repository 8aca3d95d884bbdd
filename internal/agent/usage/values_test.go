package usage

import (
	"context"
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/autoscale"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/metricsapi"
)

// TestValues asks a cluster for custom and external metrics, through its API server.
func TestValues(t *testing.T) {
	member := testenv.SharedMembers(t)[0]
	v, err := newValues(member.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	about := func(metric autoscale.Metric) question { return question{Metric: metric, namespace: "demo"} }
	external := func(name, selector string) question {
		return about(autoscale.Metric{Name: name, Selector: selector, External: true})
	}
	object := func(apiVersion, kind, name string) question {
		return about(autoscale.Metric{Name: "hits", Object: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: name}})
	}
	pods := about(autoscale.Metric{Name: "requests", Selector: "verb=GET"})
	pods.pods = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
	ask := func(q question) answer { return v.ask(t.Context(), map[question]bool{q: true})[q] }

	if got := ask(external("queue", "")); got.err == nil || !strings.Contains(got.err.Error(), "the cluster does not serve external.metrics.k8s.io") {
		t.Errorf("without the API the answer is %+v", got)
	}
	server := metricsapi.Start(t, member.RESTConfig())
	server.SetPods("demo", "requests", "app=web", "verb=GET", map[string]string{"a": "1500m", "b": "2"})
	server.SetObject("demo", "services/web", "hits", "", "12")
	server.SetObject("demo", "ingresses.networking.k8s.io/web", "hits", "", "13")
	server.SetObject("demo", "metrics", "hits", "", "14")
	server.SetExternal("demo", "queue", "name=jobs", "10", "500m")
	server.SetExternal("demo", "none", "")
	for _, c := range []struct {
		q     question
		want  string
		fails string
	}{
		{q: pods, want: "map[a:1500 b:2000] 0"},
		{q: object("v1", "Service", "web"), want: "map[] 12000"},
		{q: object("networking.k8s.io/v1", "Ingress", "web"), want: "map[] 13000"},
		{q: object("v1", "Namespace", "other"), want: "map[] 14000"},
		{q: external("queue", "name=jobs"), want: "map[] 10500"},
		{q: external("queue", ""), fails: "the adapter has no"},
		{q: external("none", ""), fails: "it has no series"},
		{q: object("v1", "Service", "other"), fails: "the adapter has no"},
		{q: object("example.com/v1", "Unknown", "web"), fails: "the cluster does not know the kind Unknown"},
		{q: object("v1", "Service", "../../../../../api/v1/nodes"), fails: "cannot be the name"},
		{q: external("../../../../api/v1/nodes", ""), fails: "cannot be the name"},
	} {
		got := ask(c.q)
		values := map[string]int64{}
		for pod, sample := range got.samples {
			values[pod] = sample.Value
		}
		if text := fmt.Sprint(values, got.value); c.fails == "" && (text != c.want || got.err != nil) {
			t.Errorf("%s: got %s and %v, want %s", c.q.Metric, text, got.err, c.want)
		}
		if c.fails != "" && (got.err == nil || !strings.Contains(got.err.Error(), c.fails)) {
			t.Errorf("%s: the error is %v, want %q", c.q.Metric, got.err, c.fails)
		}
	}
	askedOnce(t, v, server, external("queue", "name=jobs"))
	doesNotWait(t, v, server, external("queue", "name=jobs"))
}

// askedOnce checks that nothing is asked without a wish, and that a metric that several workloads need is asked for once.
func askedOnce(t *testing.T, v *values, server *metricsapi.Server, q question) {
	t.Helper()
	wishes, workloads := map[workloadKey][]autoscale.Metric{}, []workload{}
	for _, name := range []string{"a", "b", "c"} {
		w := workload{key: workloadKey{namespace: q.namespace, name: name}, selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}
		workloads = append(workloads, w)
	}
	server.Asked()
	if answers := v.ask(t.Context(), questionsOf(workloads, wishes)); len(answers) > 0 || len(server.Asked()) > 0 {
		t.Error("a metric was asked for that nobody wants")
	}
	wishes[workloads[0].key], wishes[workloads[1].key] = []autoscale.Metric{q.Metric}, []autoscale.Metric{q.Metric}
	v.ask(t.Context(), questionsOf(workloads, wishes))
	if asked := server.Asked(); len(asked) != 1 || !strings.HasSuffix(asked[0], "/queue?labelSelector=name=jobs") {
		t.Errorf("one metric was asked for with %v", asked)
	}
}

// doesNotWait checks that the answers are complete after the time that an API has, though it does not answer.
func doesNotWait(t *testing.T, v *values, server *metricsapi.Server, q question) {
	t.Helper()
	defer server.Hang()()
	questions := map[question]bool{q: true}
	for i := range 3 * askedAtOnce {
		other := q
		other.Name = fmt.Sprintf("queue-%d", i)
		questions[other] = true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*answerTime)
	defer cancel()
	answers := v.ask(ctx, questions)
	if ctx.Err() != nil || len(answers) != len(questions) {
		t.Fatalf("there are %d answers to %d questions, %v", len(answers), len(questions), ctx.Err())
	}
	for asked, got := range answers {
		if got.err == nil {
			t.Errorf("%s has the answer %+v", asked.Metric, got)
		}
	}
}
