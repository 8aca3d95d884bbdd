package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// measureLoads measures the time from a report of load to the changed replicas in the members. What comes before is up to the members: metrics-server, and the
// interval of reports.
func measureLoads(ctx context.Context, f *federation, r *reporters, s settings) error {
	var took []time.Duration
	for i := range s.loads {
		one, err := measureLoad(ctx, f, r, i)
		if err != nil {
			return err
		}
		took = append(took, one)
	}
	slices.Sort(took)
	fmt.Printf("load → new pods, after the report, %d times\n", len(took))
	show("p50; most", "%d ms; %d ms   target of p50: 1000 ms", took[len(took)/2].Milliseconds(), took[len(took)-1].Milliseconds())
	return nil
}

// measureLoad doubles what a workload uses, and waits until it has twice as many replicas in all clusters.
func measureLoad(ctx context.Context, f *federation, r *reporters, i int) (time.Duration, error) {
	watching, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var group errgroup.Group
	for _, cluster := range clusters {
		changes, err := f.members[cluster].Watch(watching, &appsv1.DeploymentList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": workload(i)})
		if err != nil {
			return 0, err
		}
		defer changes.Stop()
		group.Go(func() error {
			for event := range changes.ResultChan() {
				if d, ok := event.Object.(*appsv1.Deployment); ok && *d.Spec.Replicas >= 2 {
					return nil
				}
			}
			return fmt.Errorf("the load of %s did not come to %s", workload(i), cluster)
		})
	}
	r.use[i] = 2 * usual
	began := time.Now()
	if err := r.report(ctx); err != nil {
		return 0, err
	}
	err := group.Wait()
	took := time.Since(began)
	r.use[i], r.pods[i] = usual, 2
	return took, err
}

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
