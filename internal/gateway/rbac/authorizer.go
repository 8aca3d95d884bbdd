package rbac

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

var errNotReady = errors.New("the gateway has not loaded the RBAC objects yet; try again in a moment")

// Authorizer authorizes by the RBAC objects of the hub.
type Authorizer struct {
	live   Index
	synced []cache.InformerSynced
	// kept returns the index from before a restart, which is used until the hub answers.
	kept func() *Index
}

// NewAuthorizer returns an Authorizer that watches the hub. kept, which may be nil, returns the index to use while the hub is unreachable.
func NewAuthorizer(factory informers.SharedInformerFactory, kept func() *Index) (*Authorizer, error) {
	a := &Authorizer{kept: kept}
	rbac := factory.Rbac().V1()
	for _, informer := range []cache.SharedIndexInformer{
		rbac.ClusterRoles().Informer(), rbac.Roles().Informer(), rbac.ClusterRoleBindings().Informer(), rbac.RoleBindings().Informer(),
	} {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    a.live.Set,
			UpdateFunc: func(_, object any) { a.live.Set(object) },
			DeleteFunc: a.live.Delete,
		})
		if err != nil {
			return nil, err
		}
		a.synced = append(a.synced, registration.HasSynced)
	}
	return a, nil
}

// HasSynced reports whether all RBAC objects of the hub are loaded.
func (a *Authorizer) HasSynced() bool {
	for _, synced := range a.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// Ready reports whether there is an index to authorize by.
func (a *Authorizer) Ready() bool { return a.HasSynced() || a.lastKnown() != nil }

// Authorize implements authorizer.Authorizer.
func (a *Authorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	index := &a.live
	if !a.HasSynced() {
		if index = a.lastKnown(); index == nil {
			return authorizer.DecisionNoOpinion, "", errNotReady
		}
	}
	if index.Allows(attributes) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (a *Authorizer) lastKnown() *Index {
	if a.kept == nil {
		return nil
	}
	return a.kept()
}

// Set adds or replaces an RBAC object of any kind.
func (x *Index) Set(object any) {
	switch o := object.(type) {
	case *rbacv1.ClusterRole:
		x.SetRole("", o.Name, o.Rules)
	case *rbacv1.Role:
		x.SetRole(o.Namespace, o.Name, o.Rules)
	case *rbacv1.ClusterRoleBinding:
		x.SetBinding("", o.Name, o.RoleRef, o.Subjects)
	case *rbacv1.RoleBinding:
		x.SetBinding(o.Namespace, o.Name, o.RoleRef, o.Subjects)
	}
}

// Delete removes an RBAC object of any kind.
func (x *Index) Delete(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	switch o := object.(type) {
	case *rbacv1.ClusterRole:
		x.DeleteRole("", o.Name)
	case *rbacv1.Role:
		x.DeleteRole(o.Namespace, o.Name)
	case *rbacv1.ClusterRoleBinding:
		x.DeleteBinding("", o.Name)
	case *rbacv1.RoleBinding:
		x.DeleteBinding(o.Namespace, o.Name)
	}
}
