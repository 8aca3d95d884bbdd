package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/names"
)

const (
	// durableObjects is the number of objects of each kind: in all cells.
	durableObjects = 30
	// durableTarget is how much longer a durable write may take.
	durableTarget = 15 * time.Millisecond
)

// durability compares writes of objects with and without the annotation. They alternate, one at a time, so that other load on the machine affects both.
func (w *world) durability(ctx context.Context) error {
	if _, err := w.gateway.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	kinds := []string{"plain", "replicated"}
	for i := range durableObjects {
		for _, kind := range kinds {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: durableName(kind, i)}}
			if kind == "replicated" {
				object.Annotations = map[string]string{names.DurabilityAnnotation: names.DurabilityReplicated}
			}
			// A cell whose copies are not complete yet refuses durable writes, and the client tries again.
			if err := retried(ctx, func() error {
				_, err := w.gateway.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{})
				return err
			}); err != nil {
				return err
			}
		}
	}
	took := map[string][]time.Duration{}
	until := time.Now().Add(time.Duration(w.rounds) * w.load)
	for i := 0; time.Now().Before(until); i++ {
		for _, kind := range kinds {
			began := time.Now()
			patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i)
			if _, err := w.gateway.CoreV1().ConfigMaps(namespace).Patch(ctx, durableName(kind, i%durableObjects), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return err
			}
			took[kind] = append(took[kind], time.Since(began))
		}
	}
	for _, kind := range kinds {
		slices.Sort(took[kind])
		fmt.Printf("%d %s writes: p50 %s, p99 %s\n", len(took[kind]), kind, rounded(at(took[kind], 50)), rounded(at(took[kind], 99)))
	}
	fmt.Printf("a replicated write takes %s longer at p50 (target: at most %v)\n", rounded(at(took["replicated"], 50)-at(took["plain"], 50)), durableTarget)
	return nil
}

func durableName(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i) }

// retried repeats what fails for a minute.
func retried(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// at returns a percentile of sorted durations.
func at(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100]
}

func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
