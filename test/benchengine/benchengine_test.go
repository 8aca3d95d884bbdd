package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
)

const sampleMetrics = `# HELP apiserver_request_total [STABLE] Counter of apiserver requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="work.karmada.io",resource="works",scope="resource",subresource="",verb="POST",version="v1alpha1"} 30
apiserver_request_total{code="200",component="apiserver",dry_run="",group="work.karmada.io",resource="works",scope="resource",subresource="status",verb="PUT",version="v1alpha1"} 7
apiserver_request_total{code="409",component="apiserver",dry_run="",group="work.karmada.io",resource="works",scope="resource",subresource="status",verb="PUT",version="v1alpha1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="cluster",subresource="",verb="LIST",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 1000
apiserver_request_total_of_something_else{verb="POST",resource="works",code="201"} 5
plain 1.5e+06
`

func TestWritesAreCountedByVerbResourceAndFailure(t *testing.T) {
	writes := writesIn([]byte(sampleMetrics))
	want := requests{"POST works": 30, "PUT works/status": 7, "PUT works/status 409": 2}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := sum([]byte(sampleMetrics), "plain"); got != 1.5e6 {
		t.Errorf("a metric without labels is %v", got)
	}
	share := writes.since(requests{"POST works": 10, "PUT works/status": 7}).of(10)
	if got, want := share.String(), "2.00 POST works, 0.20 PUT works/status 409"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := share.total(); got != 2.2 {
		t.Errorf("%v writes each", got)
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for _, test := range []struct {
		values []time.Duration
		share  float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.99, 7},
		{hundred, 0, 1},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
	} {
		if got := percentile(test.values, test.share); got != test.want {
			t.Errorf("%v of %d values is %d, not %d", test.share, len(test.values), got, test.want)
		}
	}
}

func TestSectionShowsTargets(t *testing.T) {
	s := &section{Title: "Speed", Writes: requests{"POST works": 3}, WritesEach: "each"}
	s.add("fast", 59.94, unitMilliseconds).atMost(60)
	s.add("slow", 1234.5, unitMilliseconds).atMost(250)
	s.add("small", 0.0801, unitSeconds).atMost(0.08)
	s.add("count", 12, "")
	s.doubtChange(&balance{leader: 1}, &balance{leader: 1})
	if s.Doubt != "" {
		t.Errorf("doubts without a reason: %s", s.Doubt)
	}
	s.doubtChange(&balance{leader: 1}, &balance{leader: 2})
	var out bytes.Buffer
	s.print(&out)
	want := `
### Speed

| | measured | target |
|---|---|---|
| fast | 59.9 ms | ≤ 60 ms |
| slow | 1234 ms | ≤ 250 ms (missed) |
| small | 0.080 s | ≤ 0.080 s (missed) |
| count | 12 |  |

Writes each: 3.00 POST works.

**Doubtful: another engine became the leader meanwhile; the machine may have been too busy.**
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// at returns a Deployment with an image whose status has so many replicas.
func at(name, image string, replicas int32) *appsv1.Deployment {
	d := deployment(name, 1)
	d.Generation = 2
	d.Spec.Template.Spec.Containers[0].Image = image
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas}
	return d
}

func TestJourneyEndsWithTheReportOfAllMembers(t *testing.T) {
	tr := &tracker{members: 2, notify: make(chan struct{}, 1), rollouts: map[string]*rollout{}}
	w := tr.newWave(1)
	w.begin("web", secondImage, 1)
	expect := func(when string, present, reported int) {
		t.Helper()
		if w.present != present || w.reported != reported {
			t.Fatalf("%s: present %d, reported %d", when, w.present, w.reported)
		}
	}
	unobserved, surging := at("web", secondImage, 2), at("web", secondImage, 2)
	unobserved.Status.ObservedGeneration = 1
	surging.Status.Replicas = 3

	tr.seeInMember(0, at("web", firstImage, 1))
	tr.seeInMember(1, at("other", secondImage, 1))
	expect("the old image and others do not count", 0, 0)
	tr.seeInMember(0, at("web", secondImage, 0))
	tr.seeTemplate(at("web", secondImage, 2))
	expect("one member lacks it, whatever the template says", 0, 0)
	tr.seeTemplate(unobserved)
	tr.seeInMember(1, at("web", secondImage, 0))
	expect("it has arrived", 1, 0)
	tr.seeTemplate(surging)
	expect("old replicas are left", 1, 0)
	tr.seeInMember(0, at("web", secondImage, 1))
	tr.seeInMember(1, at("web", secondImage, 1))
	tr.seeTemplate(at("web", secondImage, 2))
	tr.seeTemplate(at("web", secondImage, 2))
	expect("it is reported, once", 1, 1)

	got := w.timings()
	if len(got.present) != 1 || len(got.reported) != 1 || len(got.lag) != 1 || got.present[0] > got.reported[0] || got.allReported != got.reported[0] {
		t.Errorf("timings %+v", got)
	}
}

func TestWaitTellsHowFarItGot(t *testing.T) {
	tr := &tracker{members: 1, notify: make(chan struct{}, 1), rollouts: map[string]*rollout{}}
	w := tr.newWave(2)
	w.begin("web", firstImage, 1)
	tr.seeInMember(0, at("web", firstImage, 1))
	err := tr.wait(t.Context(), "all are there", 1, func() (bool, string) { return w.present == 2, "1 of 2 are" })
	if err == nil || !strings.Contains(err.Error(), "1 of 2 are") {
		t.Errorf("got %v", err)
	}
}

func TestFileMemory(t *testing.T) {
	got, err := fileMemory("Name:\tcellplane\nRssAnon:\t   69684 kB\nRssFile:\t  100648 kB\nRssShmem:\t       0 kB\n")
	if err != nil || got != 100648<<10 {
		t.Errorf("it is %d, %v", got, err)
	}
	for _, status := range []string{"", "RssFile:", "RssFile: much kB", "RssFile: 5 pages"} {
		if got, err := fileMemory(status); err == nil {
			t.Errorf("%q is read as %d", status, got)
		}
	}
}
