package agentrights

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api/names"
)

// Ensure gives the agent of a cluster its rights and its Lease. The namespace of its Works must exist.
func Ensure(ctx context.Context, hub client.Client, cluster string) error {
	for _, wanted := range Agent(cluster) {
		if err := ensure(ctx, hub, wanted); err != nil {
			return fmt.Errorf("giving the agent of cluster %s its rights: %w", cluster, err)
		}
	}
	if err := hub.Create(ctx, leaseOf(cluster)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the Lease of cluster %s: %w", cluster, err)
	}
	return nil
}

// EnsureReporter gives the agent of a cluster in push mode the right to report metrics, and takes all others.
func EnsureReporter(ctx context.Context, hub client.Client, cluster string) error {
	wanted := reporter(cluster)
	role := &rbacv1.ClusterRole{}
	err := hub.Get(ctx, client.ObjectKeyFromObject(wanted[0]), role)
	if err == nil && !equality.Semantic.DeepEqual(role.Rules, wanted[0].(*rbacv1.ClusterRole).Rules) {
		err = remove(ctx, hub, cluster, len(wanted)) // it was in pull mode: the role is reduced last
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking rights from the agent of cluster %s: %w", cluster, err)
	}
	for _, object := range wanted {
		if err := ensure(ctx, hub, object); err != nil {
			return fmt.Errorf("giving the agent of cluster %s its rights: %w", cluster, err)
		}
	}
	return nil
}

// ensure creates or corrects an object.
func ensure(ctx context.Context, hub client.Client, wanted client.Object) error {
	found := wanted.DeepCopyObject().(client.Object)
	_, err := controllerutil.CreateOrUpdate(ctx, hub, found, func() error {
		if found.GetDeletionTimestamp() == nil {
			found.SetFinalizers(wanted.GetFinalizers())
		}
		switch to := found.(type) {
		case *rbacv1.ClusterRole:
			to.Rules, to.AggregationRule = wanted.(*rbacv1.ClusterRole).Rules, nil
		case *rbacv1.Role:
			to.Rules = wanted.(*rbacv1.Role).Rules
		case *rbacv1.ClusterRoleBinding:
			to.Subjects = wanted.(*rbacv1.ClusterRoleBinding).Subjects
		case *rbacv1.RoleBinding:
			to.Subjects = wanted.(*rbacv1.RoleBinding).Subjects
		}
		return nil
	})
	return err
}

// leaseOf returns the Lease that an agent renews. It does not say that the agent has ever reported.
func leaseOf(cluster string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.ClusterNamespace, Name: cluster, Labels: map[string]string{names.SystemLabel: "true"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(cluster)},
	}
}

// Remove takes the rights from the agent of a cluster, and removes its Lease.
func Remove(ctx context.Context, hub client.Client, cluster string) error {
	first := Agent(cluster)[0]
	err := hub.Get(ctx, client.ObjectKeyFromObject(first), first)
	if apierrors.IsNotFound(err) {
		return nil // it comes first and goes last, so there is nothing else
	}
	if err == nil {
		err = remove(ctx, hub, cluster, 0)
	}
	if err != nil {
		return fmt.Errorf("taking its rights from the agent of cluster %s: %w", cluster, err)
	}
	return nil
}

// remove removes the Lease and the rights of an agent, the last ones first. The first ones are kept.
func remove(ctx context.Context, hub client.Client, cluster string, kept int) error {
	objects := append(Agent(cluster), leaseOf(cluster))
	for _, object := range slices.Backward(objects[kept:]) {
		if err := removeOne(ctx, hub, object); err != nil {
			return err
		}
	}
	return nil
}

func removeOne(ctx context.Context, hub client.Client, object client.Object) error {
	err := hub.Get(ctx, client.ObjectKeyFromObject(object), object)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if controllerutil.RemoveFinalizer(object, Finalizer) {
		if err := hub.Update(ctx, object); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return client.IgnoreNotFound(hub.Delete(ctx, object))
}
