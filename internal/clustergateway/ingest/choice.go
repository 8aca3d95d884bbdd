package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/clustercache/generic"
)

// Choice is a kind to watch in a member.
type Choice struct {
	// Kind may be a kind that the member does not serve, or not yet.
	Kind schema.GroupVersionKind
	// Namespaces are sorted; nil means all.
	Namespaces []string
}

// Progress is how far a choice is.
type Progress struct {
	// Cluster is the member, and Kind the kind.
	Cluster string
	Kind    schema.GroupVersionKind
	// State is the state, and Message explains it unless it is Followed.
	State   State
	Message string
}

// State is the state of a choice.
type State string

const (
	// Reading means that the objects are being read for the first time.
	Reading State = "Reading"
	// Followed means that all objects are cached and watched.
	Followed State = "Cached"
	// NotServed means that the member has no such kind.
	NotServed State = "NotServed"
	// Denied means that the member does not let us read the kind.
	Denied State = "Denied"
	// Unreachable means that the member cannot be watched now.
	Unreachable State = "Unreachable"
)

// lookPause is the pause after which a member is asked again for a kind that it does not serve; it doubles up to refusedPause.
const lookPause = time.Second

// chosen is a choice that is watched in a source.
type chosen struct {
	Choice
	members *Members
	source  string
	// opened is nil until the resource of the kind is known.
	opened atomic.Pointer[feed]

	cancel context.CancelFunc // nil while it is not watched
	done   chan struct{}

	mu       sync.Mutex
	progress Progress
}

// Choose applies a change of the choices to all members.
func (m *Members) Choose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sources {
		m.choose(s)
	}
}

// choose watches in a member what is chosen for it. The caller holds the lock.
func (m *Members) choose(s *source) {
	wanted := map[schema.GroupVersionKind]Choice{}
	if m.options.Choices != nil && !s.foreign { // another share shows all objects of foreign members
		for _, choice := range m.options.Choices(s.cluster) {
			wanted[choice.Kind] = choice
		}
	}
	for kind := range s.chosen {
		if _, still := wanted[kind]; !still {
			m.drop(s, kind)
		}
	}
	for kind, choice := range wanted {
		c := s.chosen[kind]
		switch {
		case c == nil:
			c = &chosen{Choice: choice, members: m, source: s.name}
			if s.chosen == nil {
				s.chosen = map[schema.GroupVersionKind]*chosen{}
			}
			s.chosen[kind] = c
		case slices.Equal(c.Namespaces, choice.Namespaces) && (c.Namespaces == nil) == (choice.Namespaces == nil):
			continue
		default:
			// What is no longer wanted is removed when everything has been read again.
			c.stop()
			c.Choice = choice
		}
		c.note(Reading, "being read for the first time")
		c.start(s)
	}
}

// drop ends a choice and removes its objects. The caller holds the lock.
func (m *Members) drop(s *source, kind schema.GroupVersionKind) {
	c := s.chosen[kind]
	delete(s.chosen, kind)
	c.stop()
	if f := c.opened.Load(); f != nil {
		f.forget()
		m.options.Release(kind)
	}
	m.options.Progressed()
}

// Progress returns how far the choices are.
func (m *Members) Progress() []Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Progress
	for _, s := range m.sources {
		if !s.left.IsZero() {
			continue
		}
		for _, c := range s.chosen {
			c.mu.Lock()
			all = append(all, c.progress)
			c.mu.Unlock()
		}
	}
	return all
}

// note records the progress.
func (c *chosen) note(state State, message string) {
	now := Progress{Cluster: c.source, Kind: c.Kind, State: state, Message: message}
	c.mu.Lock()
	changed := c.progress != now
	c.progress = now
	c.mu.Unlock()
	if changed {
		c.members.options.Progressed()
	}
}

// start watches the kind with the current connection of its source, if there is one.
func (c *chosen) start(s *source) {
	r := s.current
	if r == nil {
		c.note(Unreachable, "the cluster cannot be connected to")
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	done, choice := make(chan struct{}), c.Choice
	begun := r.do(func() {
		defer close(done)
		defer cancel()
		select {
		case <-r.began:
			c.run(ctx, r, choice)
		case <-ctx.Done():
		}
	})
	if !begun {
		cancel()
		close(done)
	}
	c.cancel, c.done = cancel, done
}

// stop ends the watch; the objects stay.
func (c *chosen) stop() {
	if c.cancel != nil {
		c.cancel()
		<-c.done
		c.cancel = nil
	}
}

// run looks for the resource of the kind and watches it until the context ends.
func (c *chosen) run(ctx context.Context, r *run, choice Choice) {
	resource, ok := c.find(ctx, r)
	if !ok {
		return
	}
	f := c.opened.Load()
	if f == nil {
		to, err := c.members.options.Open(c.source, c.Kind, resource)
		if err != nil {
			c.note(Unreachable, err.Error())
			klog.FromContext(ctx).Error(err, "cannot cache a kind", "kind", c.Kind)
			return
		}
		f = &feed{to: to}
		c.opened.Store(f)
	}
	path := apiPath(c.Kind.GroupVersion())
	if resource.Namespaced && len(choice.Namespaces) == 1 {
		path += "/namespaces/" + choice.Namespaces[0]
	}
	path += "/" + resource.Name
	log := explain(ctx, path)
	s := &stream{
		client: r.client, base: r.base, path: path, feed: f, await: r.health.await, json: generic.Needed(c.Kind),
		began: func() { c.note(Followed, "") },
		failed: func(err error) {
			log(err)
			if ctx.Err() == nil {
				c.note(stateOf(err), err.Error())
			}
		},
	}
	if resource.Namespaced {
		s.namespaces = choice.Namespaces
	}
	r.follow(ctx, s)
}

func stateOf(err error) State {
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return Denied
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return NotServed
	default:
		return Unreachable
	}
}

// find asks the member for the resource of the kind until it serves it; ok is false if the context has ended.
func (c *chosen) find(ctx context.Context, r *run) (resource metav1.APIResource, ok bool) {
	for pause := lookPause; ; pause = min(2*pause, refusedPause) {
		r.health.await(ctx)
		resource, err := look(ctx, r, c.Kind)
		if err == nil {
			return resource, true
		}
		if ctx.Err() != nil {
			return resource, false
		}
		c.note(stateOf(err), err.Error())
		if f := c.opened.Load(); f != nil { // from an earlier connection
			f.lost(time.Now())
			f.expire(time.Now().Add(-c.members.options.Times.StaleAfter))
		}
		sleep(ctx, pause/2+rand.N(pause))
	}
}

// look asks the member for the resource of a kind. The error is a 404 if it serves none that can be watched.
func look(ctx context.Context, r *run, kind schema.GroupVersionKind) (metav1.APIResource, error) {
	s := stream{client: r.client, base: r.base, path: apiPath(kind.GroupVersion()), json: true}
	response, err := s.get(ctx, nil)
	if err != nil {
		return metav1.APIResource{}, fmt.Errorf("looking for the kind: %w", err)
	}
	defer response.Body.Close()
	var list metav1.APIResourceList
	if err := json.NewDecoder(io.LimitReader(response.Body, maxFrame)).Decode(&list); err != nil {
		return metav1.APIResource{}, fmt.Errorf("looking for the kind: %w", errors.Join(errMalformed, err))
	}
	for _, resource := range list.APIResources {
		if resource.Kind == kind.Kind && !strings.Contains(resource.Name, "/") && slices.Contains(resource.Verbs, "watch") && slices.Contains(resource.Verbs, "list") {
			return resource, nil
		}
	}
	return metav1.APIResource{}, apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, "", "", 0, true)
}

func apiPath(version schema.GroupVersion) string {
	if version.Group == "" {
		return "/api/" + version.Version
	}
	return "/apis/" + version.Group + "/" + version.Version
}
