package adopt

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podWatch sees every pod, ReplicaSet and ControllerRevision that appears or disappears in a member, and every restart.
type podWatch struct {
	cluster string
	mu      sync.Mutex
	seen    map[types.UID]bool
	// events are by the name of the workload.
	events map[string][]string
}

func watchPods(t *testing.T, cluster string, member client.WithWatch) *podWatch {
	t.Helper()
	w := &podWatch{cluster: cluster, seen: map[types.UID]bool{}, events: map[string][]string{}}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &appsv1.ReplicaSetList{}, &appsv1.ControllerRevisionList{}} {
		if err := member.List(t.Context(), list, client.InNamespace(manyNamespace)); err != nil {
			t.Fatal(err)
		}
		version := list.GetResourceVersion()
		w.note(t, list)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.follow(ctx, t, member, list, version)
		}()
		t.Cleanup(func() {
			cancel()
			<-done
		})
	}
	return w
}

// note records the objects that are there already.
func (w *podWatch) note(t *testing.T, list client.ObjectList) {
	items, err := runtimeItems(list)
	if err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, obj := range items {
		w.seen[obj.GetUID()] = true
	}
}

// follow watches until the end of the test. A watch that ends is continued where it was.
func (w *podWatch) follow(ctx context.Context, t *testing.T, member client.WithWatch, list client.ObjectList, version string) {
	for ctx.Err() == nil {
		stream, err := member.Watch(ctx, list, client.InNamespace(manyNamespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}})
		if err != nil {
			select { // the member may be paused
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		for event := range stream.ResultChan() {
			obj, ok := event.Object.(client.Object)
			if err := apierrors.FromObject(event.Object); event.Type == watch.Error && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				break // the connection has ended
			}
			if !ok || event.Type == watch.Error {
				t.Errorf("watching %T in %s: %v", list, w.cluster, event.Object)
				stream.Stop()
				return
			}
			version = obj.GetResourceVersion()
			w.handle(event.Type, obj)
		}
		stream.Stop()
	}
}

func (w *podWatch) handle(kind watch.EventType, obj client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch kind {
	case watch.Added:
		if !w.seen[obj.GetUID()] {
			w.add(obj, "appeared")
		}
		w.seen[obj.GetUID()] = true
	case watch.Deleted:
		w.add(obj, "disappeared")
	case watch.Modified:
		if pod, is := obj.(*corev1.Pod); is {
			for i := range pod.Status.ContainerStatuses {
				if pod.Status.ContainerStatuses[i].RestartCount > 0 {
					w.add(obj, "was restarted")
				}
			}
		}
	}
}

// add records an event. The names of what belongs to a workload begin with its name.
func (w *podWatch) add(obj client.Object, what string) {
	parts := strings.SplitN(obj.GetName(), "-", 3)
	name := strings.Join(parts[:min(2, len(parts))], "-")
	w.events[name] = append(w.events[name], fmt.Sprintf("%T %s %s", obj, obj.GetName(), what))
}

// wantQuiet checks that nothing has happened, except to the workloads that were changed.
func (w *podWatch) wantQuiet(t *testing.T, changed map[string]bool) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, events := range w.events {
		if !changed[name] {
			t.Errorf("in %s: %v", w.cluster, events)
		}
	}
}

func runtimeItems(list client.ObjectList) (items []client.Object, err error) {
	switch list := list.(type) {
	case *corev1.PodList:
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
	case *appsv1.ReplicaSetList:
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
	case *appsv1.ControllerRevisionList:
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
	default:
		err = fmt.Errorf("%T is not watched", list)
	}
	return items, err
}
