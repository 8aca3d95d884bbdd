package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
)

// load is when the pods of a workload began to use twice as much, when a cluster first reported that, and when a member first had more replicas.
type load struct{ begun, pushed, placed time.Time }

// loads are those of workloads, by name.
type loads struct {
	mu     sync.Mutex
	byName map[string]*load
}

// begin notes a load. The caller lets the workload use more then: a report that began before does not have it.
func (l *loads) begin(name string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil {
		l.byName = map[string]*load{}
	}
	l.byName[name] = &load{begun: now}
}

// pushed notes which loads are in a report that is being sent.
func (l *loads) pushed(items []metricsv1alpha1.WorkloadMetrics, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byName) == 0 {
		return
	}
	for i := range items {
		one := l.byName[items[i].Workload.Name]
		if one != nil && one.pushed.IsZero() && items[i].Metrics[0].Measured.Usage.MilliValue() > 3*usual/2 {
			one.pushed = now
		}
	}
}

// placed notes that a member has more replicas.
func (l *loads) placed(name string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.byName[name]; one != nil && one.placed.IsZero() {
		one.placed = now
	}
}

// took returns how long it took to place all replicas, from the loads and from the reports, sorted. It is false as long as not all are placed.
func (l *loads) took() (fromLoad, fromPush []time.Duration, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.byName {
		if one.placed.IsZero() {
			return nil, nil, false
		}
		fromLoad, fromPush = append(fromLoad, one.placed.Sub(one.begun)), append(fromPush, one.placed.Sub(one.pushed))
	}
	slices.Sort(fromLoad)
	slices.Sort(fromPush)
	return fromLoad, fromPush, true
}

// measureLoads measures the time from load to the first new replicas in a member, while all clusters report and all autoscalers decide. Loads begin at any time
// between two reports. What metrics-server takes, which measures every 15 seconds by default, comes before.
func measureLoads(ctx context.Context, f *federation, r *reporters, s settings) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var following sync.WaitGroup
	defer following.Wait()
	for _, cluster := range clusters {
		changes, err := f.members[cluster].Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(namespace))
		if err != nil {
			return err
		}
		defer changes.Stop()
		following.Go(func() {
			for event := range changes.ResultChan() {
				if d, ok := event.Object.(*appsv1.Deployment); ok && *d.Spec.Replicas >= 2 {
					r.loads.placed(d.Name, time.Now())
				}
			}
		})
	}
	var beginning errgroup.Group
	for i := range s.loads {
		beginning.Go(func() error {
			if err := pause(ctx, rand.N(2*s.interval)); err != nil {
				return err
			}
			r.loads.begin(workload(i), time.Now())
			r.busy[i].Store(true)
			return nil
		})
	}
	if err := beginning.Wait(); err != nil {
		return err
	}
	var fromLoad, fromPush []time.Duration
	err := until(ctx, "all loads have led to new replicas", func() (done bool, _ error) {
		fromLoad, fromPush, done = r.loads.took()
		return done, nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("load → the first new replicas in a member, %d times, with metrics that are measured at once\n", s.loads)
	show("p50; most, from the load", "%.1f s; %.1f s   target of p50, with metrics-server: 20 s", median(fromLoad).Seconds(), last(fromLoad).Seconds())
	show("p50; most, from the report", "%d ms; %d ms   target of p50: 1000 ms", median(fromPush).Milliseconds(), last(fromPush).Milliseconds())
	return nil
}

func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }

func last(sorted []time.Duration) time.Duration { return sorted[len(sorted)-1] }

// measureAsking asks all members for the pods of each autoscaler, as an adapter of the metrics API does for a decision. An adapter also asks for the metrics of
// the pods, which is as many requests again.
func measureAsking(ctx context.Context, f *federation, s settings, ours float64) error {
	before, err := f.podLists(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range s.autoscalers {
		for _, cluster := range clusters {
			selected := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(labels.Set{"app": workload(i)})}
			if err := f.members[cluster].List(ctx, &corev1.PodList{}, client.InNamespace(namespace), selected); err != nil {
				return err
			}
		}
	}
	took := time.Since(began)
	after, err := f.podLists(ctx)
	if err != nil {
		return err
	}
	fmt.Println("compared with asking the members")
	show("lists of pods in members for a decision, ours; asking", "%.2f; %.2f   target: 0 for ours", ours, float64(after-before)/float64(s.autoscalers))
	show("time of asking for a decision", "%.1f ms", took.Seconds()*1000/float64(s.autoscalers))
	return nil
}

// metrics returns the metrics of an API server.
func metrics(ctx context.Context, config *rest.Config) (string, error) {
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	text, err := server.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	return string(text), err
}
