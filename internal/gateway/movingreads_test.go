package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/names"
)

// testStages looks at an object in every stage of its move, also before the change begins.
func (y *yard) testStages() {
	name, stays := y.name("stages", true), y.name("stays", false)
	created := y.create(0, name)
	y.create(0, stays)
	waiting := y.name("waiting", true)
	y.create(0, waiting)
	from := y.revision(1)
	ahead := y.joining(from)
	ahead.Ready = false
	y.deliver(0, ahead)
	y.create(0, y.name("while-fencing", true)) // nobody waits before the fence is up
	y.raise(2, 0, 1)
	held := make(chan error, 1)
	go func() {
		_, err := y.clients[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(y.name("held", true), "0"), metav1.CreateOptions{})
		held <- err
	}()
	// Whatever exists can be changed before the change is in force.
	_, err := y.clients[0].AppsV1().Deployments(y.namespace).Patch(y.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"value":"1"}}}`), metav1.PatchOptions{})
	must(y.t, err)
	y.deliver(0, y.joining(from))
	must(y.t, <-held)
	if y.inCell(0, y.name("held", true)) || !y.inCell(1, y.name("held", true)) {
		y.t.Error("what was created when the change was in force is in the old cell")
	}
	j := y.journey(name)
	for _, stage := range []struct {
		name string
		do   func()
	}{{"before", func() {}}, {"frozen", j.freeze}, {"copied", j.copy}, {"committed", j.commit}, {"active", j.activate}} {
		stage.do()
		got := y.get(0, name)
		if got.UID != created.UID || got.Annotations["value"] != "1" {
			y.t.Errorf("%s: got %s with %v", stage.name, got.UID, got.Annotations)
		}
		listed := y.list(0)
		if listed[name] != string(created.UID)+" 1" || listed[stays] == "" || listed[waiting] == "" {
			y.t.Errorf("%s: listed %v", stage.name, listed)
		}
		response := send(y.t, y.gateways[0].Config(y.t), http.MethodGet, "/apis/apps/v1/namespaces/"+y.namespace+"/deployments/"+name+"/scale", nil, "")
		if response.StatusCode != http.StatusOK {
			y.t.Errorf("%s: the scale: %s", stage.name, response.Status)
		}
		table := readOK(y.t, send(y.t, y.gateways[0].Config(y.t), http.MethodGet, "/apis/apps/v1/namespaces/"+y.namespace+"/deployments?limit=2",
			http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}}, ""))
		if !strings.Contains(string(table), "continue") {
			y.t.Errorf("%s: a page has no next: %s", stage.name, table)
		}
		if _, err := y.clients[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(name, "x"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			y.t.Errorf("%s: creating it again: %v", stage.name, err)
		}
	}
}

// testStaleGateway uses a gateway that has not heard of the change. Nothing it answers may be out of date.
func (y *yard) testStaleGateway() {
	moved, created, staying := y.name("stages", true), y.name("posted", true), y.name("stays", false)
	deployments := y.clients[1].AppsV1().Deployments(y.namespace)
	ctx := y.t.Context()
	requests := map[string]func() error{
		"read what moved": func() error {
			got, err := deployments.Get(ctx, moved, metav1.GetOptions{})
			if err == nil && got.Labels[names.RebalanceStatusLabel] != "" {
				return fmt.Errorf("got what was left behind")
			}
			return err
		},
		"read what was created elsewhere": func() error { _, err := deployments.Get(ctx, created, metav1.GetOptions{}); return err },
		"list": func() error {
			list, err := deployments.List(ctx, metav1.ListOptions{})
			for _, item := range list.Items {
				if item.Name == created {
					return err
				}
			}
			return errors.Join(err, errors.New("something is missing"))
		},
		"write": func() error {
			_, err := deployments.Patch(ctx, moved, types.MergePatchType, []byte(`{"metadata":{"annotations":{"stale":"no"}}}`), metav1.PatchOptions{})
			return err
		},
		"write what stays": func() error {
			_, err := deployments.Patch(ctx, staying, types.MergePatchType, []byte(`{"metadata":{"annotations":{"stale":"no"}}}`), metav1.PatchOptions{})
			return err
		},
		"create again": func() error {
			_, err := deployments.Create(ctx, movable(created, "0"), metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		},
		"create": func() error {
			_, err := deployments.Create(ctx, movable(y.name("stale", true), "0"), metav1.CreateOptions{})
			return err
		},
	}
	var open atomic.Int32
	var group sync.WaitGroup
	for what, request := range requests {
		open.Add(1)
		group.Go(func() {
			defer open.Add(-1)
			if err := request(); err != nil {
				y.t.Errorf("%s through a gateway that was behind: %v", what, err)
			}
		})
	}
	y.waitHeld()
	if n := open.Load(); int(n) != len(requests) {
		y.t.Errorf("%d requests were answered by a map that was not in force", len(requests)-int(n))
	}
	y.deliver(1, y.joining(y.revision(1)))
	group.Wait()
	if y.inCell(0, y.name("stale", true)) {
		y.t.Error("something was created in the old cell")
	}
}
