package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/process"
)

// benchGroup is the group of ordinary users: others are exempt from flow control.
const benchGroup = "bench:users"

// floodLoad has one user open watches without a pause, and keeps those that are accepted. It measures what another user notices.
func (b *bench) floodLoad(ctx context.Context) error {
	if err := b.admitUsers(ctx); err != nil {
		return err
	}
	flooder, err := b.user("flooder")
	if err != nil {
		return err
	}
	other, err := b.user("other")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	get := load{name: "GET", workers: 2, request: func(w way, i int) (*http.Request, error) {
		return newRequest(http.MethodGet, fmt.Sprintf("%s/api/v1/namespaces/small/configmaps/map-%d", w.base, i%b.small), "application/json", nil)
	}}
	measure := func(when string) error {
		into := &result{}
		if err := b.drive(ctx, other, get, b.seconds, into); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		into.print("GET of another user", when)
		return nil
	}
	before := residentOf(b.gateway.Process.Pid)
	if err := measure("alone"); err != nil {
		return err
	}
	var opened, refused atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, 1)
	began := time.Now()
	var took time.Duration
	group.Go(func() {
		if err := b.flood(ctx, flooder, &opened, &refused); err != nil {
			failures <- err
		}
		took = time.Since(began)
	})
	if err := measure("during"); err != nil {
		return err
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	if err := measure("after"); err != nil {
		return err
	}
	fmt.Printf("%d watches of one user in %v: %d open, %d refused; the gateway's memory went from %d to %d MiB\n", b.flooding, took.Round(time.Second),
		opened.Load(), refused.Load(), before>>20, residentOf(b.gateway.Process.Pid)>>20)
	return nil
}

// flood asks for as many watches as wanted, some at once.
func (b *bench) flood(ctx context.Context, w way, opened, refused *atomic.Int64) error {
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make([]error, b.workers)
	for i := range failures {
		group.Go(func() {
			for failures[i] == nil && int(next.Add(1)) <= b.flooding {
				failures[i] = openWatch(ctx, w, opened, refused)
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

// openWatch asks for a watch and leaves it open.
func openWatch(ctx context.Context, w way, opened, refused *atomic.Int64) error {
	r, err := newRequest(http.MethodGet, w.base+"/api/v1/namespaces/small/configmaps?watch=1&labelSelector=index%3D0", "application/json", nil)
	if err != nil {
		return err
	}
	response, err := w.client.Do(r.WithContext(ctx)) //nolint:bodyclose // it is open until the context ends
	if err != nil {
		return err
	}
	switch response.StatusCode {
	case http.StatusOK:
		opened.Add(1)
		return nil
	case http.StatusTooManyRequests:
		refused.Add(1)
		return response.Body.Close()
	default:
		return errors.Join(fmt.Errorf("watching: %s", response.Status), response.Body.Close())
	}
}

// admitUsers gives ordinary users the right to read.
func (b *bench) admitUsers(ctx context.Context) error {
	return b.onAll(func(client kubernetes.Interface) error {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "bench-users"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: benchGroup}},
		}, metav1.CreateOptions{})
		return err
	})
}

// user returns the way of an ordinary user through the gateway, with connections of its own.
func (b *bench) user(name string) (way, error) {
	config := rest.CopyConfig(b.configs["gateway"])
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{benchGroup, "system:authenticated"}}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return way{}, err
	}
	return way{name: name, client: &http.Client{Transport: uncompressed(transport)}, base: config.Host}, nil
}

// residentOf returns the memory that a process has in use.
func residentOf(pid int) int64 {
	usage, err := process.UsageOf(pid)
	if err != nil {
		return 0
	}
	return usage.RSS
}
