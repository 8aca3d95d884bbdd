package rbac

import (
	"context"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/gateway/keep"
)

// keepEvery is how often a changed index is written to disk.
const keepEvery = 5 * time.Second

// Snapshot keeps the index of an Authorizer on disk, for a start while the hub is down.
type Snapshot struct {
	file *keep.Value[content]
	// index is that of the file.
	index func() *Index
}

// NewSnapshot returns a Snapshot with its file in a directory.
func NewSnapshot(dir string) *Snapshot {
	k := &Snapshot{file: keep.NewValue[content](dir, "rbac.json")}
	k.index = sync.OnceValue(func() *Index { return k.file.Kept().index() })
	return k
}

// Kept returns the index from before the start; nil if there is none, or if the hub may still answer.
func (k *Snapshot) Kept() *Index {
	if k.file.Kept() == nil {
		return nil
	}
	return k.index()
}

// Run writes the index of an Authorizer to disk whenever it has changed, until the context ends.
func (k *Snapshot) Run(ctx context.Context, a *Authorizer) {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	var written uint64
	for {
		if version := a.live.changes.Load(); a.HasSynced() && version != written {
			if err := k.file.Save(a.live.content()); err != nil {
				klog.FromContext(ctx).Error(err, "keeping the RBAC objects failed, a restart will need the hub")
			} else {
				written = version
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// content is the encoding of an index.
type content struct {
	Roles    []keptRole
	Bindings []keptBinding
}

type keptRole struct {
	Namespace, Name string
	Rules           []rbacv1.PolicyRule
}

type keptBinding struct {
	Namespace, Name string
	Role            roleRef
	Subjects        []keptSubject
}

type roleRef struct{ Namespace, Name string }

type keptSubject struct {
	Group bool
	Name  string
}

func (c *content) index() *Index {
	index := &Index{}
	for _, role := range c.Roles {
		index.SetRole(role.Namespace, role.Name, role.Rules)
	}
	for _, b := range c.Bindings {
		subjects := make([]subject, len(b.Subjects))
		for i, s := range b.Subjects {
			subjects[i] = subject{s.Group, s.Name}
		}
		index.bind(bindingKey{b.Namespace, b.Name}, roleKey{b.Role.Namespace, b.Role.Name}, subjects)
	}
	return index
}

func (x *Index) content() content {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var c content
	for key, rules := range x.roles {
		c.Roles = append(c.Roles, keptRole{key.namespace, key.name, rules})
	}
	for _, in := range x.grants {
		for s, grants := range in {
			for _, g := range grants {
				c.Bindings = append(c.Bindings, keptBinding{
					g.binding.namespace, g.binding.name + "\x00" + s.name, roleRef{g.role.namespace, g.role.name}, []keptSubject{{s.group, s.name}},
				})
			}
		}
	}
	return c
}
