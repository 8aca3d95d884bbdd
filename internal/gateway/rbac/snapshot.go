package rbac

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/klog/v2"
)

const (
	// keepEvery is how often a changed index is written to disk.
	keepEvery = 5 * time.Second
	// silence is how long the hub must be unreachable after a start before the kept index is used: a right that was revoked while the
	// gateway was down must not return while the hub answers.
	silence = 3 * time.Second
)

// Snapshot keeps the index of an Authorizer on disk, for a start while the hub is down.
type Snapshot struct {
	file    string
	started time.Time

	once sync.Once
	kept *Index
}

// NewSnapshot returns a Snapshot with its file in a directory.
func NewSnapshot(dir string) *Snapshot {
	return &Snapshot{file: filepath.Join(dir, "rbac.gob"), started: time.Now()}
}

// Kept returns the index from before the start; nil if there is none, or if the hub may still answer.
func (k *Snapshot) Kept() *Index {
	if time.Since(k.started) < silence {
		return nil
	}
	k.once.Do(func() {
		kept, err := k.load()
		if err == nil {
			k.kept = kept
			klog.Background().Info("the hub is unreachable, authorizing by the kept RBAC objects", "file", k.file)
		} else if !errors.Is(err, fs.ErrNotExist) {
			klog.Background().Error(err, "reading the kept RBAC objects failed, waiting for the hub", "file", k.file)
		}
	})
	return k.kept
}

// Run writes the index of an Authorizer to disk whenever it has changed, until the context ends.
func (k *Snapshot) Run(ctx context.Context, a *Authorizer) {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	var written uint64
	for {
		if version := a.live.changes.Load(); a.HasSynced() && version != written {
			if err := k.save(&a.live); err != nil {
				klog.FromContext(ctx).Error(err, "keeping the RBAC objects failed, a restart will need the hub", "file", k.file)
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

func (k *Snapshot) load() (*Index, error) {
	data, err := os.ReadFile(k.file)
	if err != nil {
		return nil, err
	}
	var c content
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&c); err != nil {
		return nil, err
	}
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
	return index, nil
}

func (k *Snapshot) save(x *Index) error {
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(x.content()); err != nil {
		return fmt.Errorf("encoding the RBAC index: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(k.file+".new", data.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(k.file+".new", k.file)
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
