// Package policylimit keeps the admission policies and webhooks of users from blocking the control plane on the hub. Gateways add the match
// condition that limits a policy to the requests of users. This adds it to policies that were written past the gateways or before the
// gateways did so.
//
// All hub managers do it, not only the leader: a policy that refuses everything would keep a new leader from taking its Lease. No policy or
// webhook applies to policies and webhooks themselves, so this cannot be blocked.
package policylimit

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/userpolicy"
)

// Limiter watches the policies of a hub.
type Limiter struct {
	client    dynamic.Interface
	informers dynamicinformer.DynamicSharedInformerFactory
	queue     workqueue.TypedRateLimitingInterface[key]
}

type key struct {
	kind userpolicy.Kind
	name string
}

// New returns a Limiter for a hub.
func New(hub *rest.Config) (*Limiter, error) {
	client, err := dynamic.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the policies of the hub: %w", err)
	}
	l := &Limiter{
		client: client, informers: dynamicinformer.NewDynamicSharedInformerFactory(client, 0),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[key]()),
	}
	for _, kind := range userpolicy.Kinds() {
		if !kind.Conditional() {
			continue
		}
		note := func(object any) {
			if u, ok := object.(*unstructured.Unstructured); ok && lacks(kind, u) {
				l.queue.Add(key{kind: kind, name: u.GetName()})
			}
		}
		_, err := l.informers.ForResource(kind.Resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: note, UpdateFunc: func(_, object any) { note(object) },
		})
		if err != nil {
			return nil, fmt.Errorf("preparing to watch the policies of the hub: %w", err)
		}
	}
	return l, nil
}

// lacks reports whether an object is a user's and not limited.
func lacks(kind userpolicy.Kind, object *unstructured.Unstructured) bool {
	return !userpolicy.Reserved(object.GetName()) && !kind.Limited(object.Object)
}

// Run limits policies until ctx ends.
func (l *Limiter) Run(ctx context.Context) {
	l.informers.Start(ctx.Done())
	defer l.informers.Shutdown()
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	for {
		next, shutdown := l.queue.Get()
		if shutdown {
			return
		}
		if err := l.limit(ctx, next); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "limiting a policy to the requests of users failed, will retry", "kind", next.kind.Kind, "policy", next.name)
			l.queue.AddRateLimited(next)
		} else {
			l.queue.Forget(next)
		}
		l.queue.Done(next)
	}
}

// limit adds the match condition to one object.
func (l *Limiter) limit(ctx context.Context, k key) error {
	objects := l.client.Resource(k.kind.Resource)
	object, err := objects.Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !lacks(k.kind, object) || !k.kind.Limit(object.Object) {
		return nil
	}
	_, err = objects.Update(ctx, object, metav1.UpdateOptions{FieldManager: "cellplane-hub-manager"})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
