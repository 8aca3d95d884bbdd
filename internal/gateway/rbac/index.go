package rbac

import (
	"slices"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// subject is a user or a group. A service account is its user.
type subject struct {
	group bool
	name  string
}

// scope is a namespace, or the whole cluster if it is empty.
type scope string

// roleKey names a role; a ClusterRole is in no namespace.
type roleKey struct {
	namespace, name string
}

// bindingKey names a binding; a ClusterRoleBinding is in no namespace.
type bindingKey struct {
	namespace, name string
}

// grant gives a role to a subject.
type grant struct {
	binding bindingKey
	role    roleKey
}

// Index holds RBAC objects. The zero value is empty and ready.
type Index struct {
	mu       sync.RWMutex
	roles    map[roleKey][]rbacv1.PolicyRule
	bindings map[bindingKey][]subject
	grants   map[scope]map[subject][]grant
	changes  atomic.Uint64
}

// SetRole adds or replaces a Role, or a ClusterRole if the namespace is empty.
func (x *Index) SetRole(namespace, name string, rules []rbacv1.PolicyRule) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changes.Add(1)
	if x.roles == nil {
		x.roles = map[roleKey][]rbacv1.PolicyRule{}
	}
	x.roles[roleKey{namespace, name}] = rules
}

// DeleteRole removes a Role, or a ClusterRole if the namespace is empty.
func (x *Index) DeleteRole(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changes.Add(1)
	delete(x.roles, roleKey{namespace, name})
}

// SetBinding adds or replaces a RoleBinding, or a ClusterRoleBinding if the namespace is empty.
func (x *Index) SetBinding(namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changes.Add(1)
	key := bindingKey{namespace, name}
	x.unbind(key)
	role := roleKey{name: ref.Name}
	switch ref.Kind {
	case "ClusterRole":
	case "Role":
		if role.namespace = namespace; namespace == "" {
			return
		}
	default:
		return
	}
	x.bind(key, role, subjectsOf(namespace, subjects))
}

// DeleteBinding removes a RoleBinding, or a ClusterRoleBinding if the namespace is empty.
func (x *Index) DeleteBinding(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changes.Add(1)
	x.unbind(bindingKey{namespace, name})
}

func (x *Index) bind(key bindingKey, role roleKey, subjects []subject) {
	if x.bindings == nil {
		x.bindings, x.grants = map[bindingKey][]subject{}, map[scope]map[subject][]grant{}
	}
	x.bindings[key] = subjects
	in := x.grants[scope(key.namespace)]
	if in == nil {
		in = map[subject][]grant{}
		x.grants[scope(key.namespace)] = in
	}
	for _, s := range subjects {
		in[s] = append(in[s], grant{key, role})
	}
}

func (x *Index) unbind(key bindingKey) {
	in := x.grants[scope(key.namespace)]
	for _, s := range x.bindings[key] {
		in[s] = slices.DeleteFunc(slices.Clone(in[s]), func(g grant) bool { return g.binding == key })
		if len(in[s]) == 0 {
			delete(in, s)
		}
	}
	if len(in) == 0 {
		delete(x.grants, scope(key.namespace))
	}
	delete(x.bindings, key)
}

func subjectsOf(namespace string, from []rbacv1.Subject) []subject {
	var subjects []subject
	for _, s := range from {
		switch s.Kind {
		case rbacv1.UserKind:
			subjects = append(subjects, subject{name: s.Name})
		case rbacv1.GroupKind:
			subjects = append(subjects, subject{group: true, name: s.Name})
		case rbacv1.ServiceAccountKind:
			of := namespace
			if s.Namespace != "" {
				of = s.Namespace
			}
			if of != "" {
				subjects = append(subjects, subject{name: serviceaccount.MakeUsername(of, s.Name)})
			}
		}
	}
	return subjects
}

// Allows reports whether a role of the user allows a request.
func (x *Index) Allows(a authorizer.Attributes) bool {
	u := a.GetUser()
	if u == nil {
		return false
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.allowsIn("", u, a) {
		return true
	}
	namespace := a.GetNamespace()
	return namespace != "" && x.allowsIn(scope(namespace), u, a)
}

func (x *Index) allowsIn(in scope, u user.Info, a authorizer.Attributes) bool {
	grants := x.grants[in]
	if len(grants) == 0 {
		return false
	}
	if x.anyAllows(grants[subject{name: u.GetName()}], a) {
		return true
	}
	for _, group := range u.GetGroups() {
		if x.anyAllows(grants[subject{group: true, name: group}], a) {
			return true
		}
	}
	return false
}

func (x *Index) anyAllows(grants []grant, a authorizer.Attributes) bool {
	for _, g := range grants {
		if allows(x.roles[g.role], a) {
			return true
		}
	}
	return false
}
