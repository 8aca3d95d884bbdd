// Package endpointslices collects the EndpointSlices of a cell's Services in members.
//
// The controller in the member copies the labels of a Service to its EndpointSlices, so one watch by the cell's label finds those of all Services
// that the cell has propagated, and no others.
package endpointslices

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Kind is the kind of EndpointSlices.
var Kind = discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")

// Slice is an EndpointSlice of a member, as other clusters may use it. It is immutable.
type Slice struct {
	Name    string
	Service cell.Key
	// Headless is set if the Service has no address of its own.
	Headless bool
	// Content are the fields besides metadata, as JSON. It names no node, pod or zone hint of the member.
	Content string
}

// Collector knows the EndpointSlices of the members that it was asked about.
type Collector struct {
	selector string
	follow   func(cluster string, feed execution.Feed)
	changed  func(service cell.Key)

	mu      sync.Mutex
	members map[string]*member
}

// New returns a collector for a cell. Follow starts a watch in a member, and changed is called with a Service whose EndpointSlices have changed.
func New(cellName string, follow func(cluster string, feed execution.Feed), changed func(service cell.Key)) *Collector {
	selector := strings.Join([]string{
		names.ManagedLabel + "=" + names.ManagedValue, names.CellLabel + "=" + cellName,
		discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy + "!=" + names.DispatchedEndpointSlice,
	}, ",")
	return &Collector{selector: selector, follow: follow, changed: changed, members: map[string]*member{}}
}

// Of returns the EndpointSlices of a Service in a member, in the order of their names, and whether they are known. The first call for a member begins
// to watch it.
func (c *Collector) Of(cluster string, service cell.Key) ([]*Slice, bool) {
	c.mu.Lock()
	m, known := c.members[cluster]
	if !known {
		m = &member{collector: c, slices: map[cell.Key]*Slice{}, services: map[cell.Key]map[string]*Slice{}}
		c.members[cluster] = m
	}
	c.mu.Unlock()
	if !known {
		c.follow(cluster, execution.Feed{Kind: Kind, Selector: c.selector, Sink: m.newWatch})
	}
	return m.of(service)
}

// member has the EndpointSlices of a member. What was last seen is kept while the member is unreachable.
type member struct {
	collector *Collector

	mu       sync.Mutex
	current  *watch
	synced   bool
	slices   map[cell.Key]*Slice            // by their own keys
	services map[cell.Key]map[string]*Slice // by Service and name
	interest map[cell.Key]struct{}          // Services that were asked for before the first list was complete
}

func (m *member) of(service cell.Key) ([]*Slice, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.synced {
		if m.interest == nil {
			m.interest = map[cell.Key]struct{}{}
		}
		m.interest[service] = struct{}{}
		return nil, false
	}
	found := make([]*Slice, 0, len(m.services[service]))
	for _, slice := range m.services[service] {
		found = append(found, slice)
	}
	slices.SortFunc(found, func(a, b *Slice) int { return strings.Compare(a.Name, b.Name) })
	return found, true
}

// newWatch returns the sink of a new watch. The former one is ignored from now on: it may still be in the middle of a list.
func (m *member) newWatch() fleet.Sink {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current = &watch{member: m}
	return m.current
}

// set stores an EndpointSlice, or removes it if it is nil, and returns the Services that this changes.
func (m *member) set(key cell.Key, now *Slice) []cell.Key {
	before := m.slices[key]
	if before == now || before != nil && now != nil && *before == *now {
		return nil
	}
	var changed []cell.Key
	if before != nil {
		changed = append(changed, before.Service)
		delete(m.services[before.Service], before.Name)
		if len(m.services[before.Service]) == 0 {
			delete(m.services, before.Service)
		}
		delete(m.slices, key)
	}
	if now != nil {
		if before == nil || before.Service != now.Service {
			changed = append(changed, now.Service)
		}
		if m.services[now.Service] == nil {
			m.services[now.Service] = map[string]*Slice{}
		}
		m.services[now.Service][now.Name], m.slices[key] = now, now
	}
	return changed
}

func (m *member) announce(changed []cell.Key) {
	for _, service := range changed {
		m.collector.changed(service)
	}
}

// watch implements fleet.Sink for one connection.
type watch struct {
	member *member
	seen   map[cell.Key]struct{} // during a list
}

// Set stores an EndpointSlice.
func (w *watch) Set(from runtime.Object) {
	obj, ok := from.(*fleet.Bare)
	if !ok {
		return
	}
	key := cell.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	w.change(key, Condense(obj.Unstructured))
}

// Unset removes an EndpointSlice.
func (w *watch) Unset(from runtime.Object) {
	if obj, ok := from.(*fleet.Bare); ok {
		w.change(cell.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}, nil)
	}
}

func (w *watch) change(key cell.Key, now *Slice) {
	m := w.member
	m.mu.Lock()
	if m.current != w {
		m.mu.Unlock()
		return
	}
	if w.seen != nil {
		w.seen[key] = struct{}{}
	}
	changed, synced := m.set(key, now), m.synced
	m.mu.Unlock()
	if synced {
		m.announce(changed)
	}
}

// Relist begins a list; the function ends it and removes what is gone.
func (w *watch) Relist() (done func(resourceVersion string)) {
	m := w.member
	m.mu.Lock()
	w.seen = map[cell.Key]struct{}{}
	m.mu.Unlock()
	return func(string) {
		m.mu.Lock()
		if m.current != w {
			m.mu.Unlock()
			return
		}
		var changed []cell.Key
		for key := range m.slices {
			if _, there := w.seen[key]; !there {
				changed = append(changed, m.set(key, nil)...)
			}
		}
		for service := range m.interest {
			changed = append(changed, service)
		}
		w.seen, m.interest, m.synced = nil, nil, true
		m.mu.Unlock()
		m.announce(changed)
	}
}

// Condense returns an EndpointSlice as other clusters may use it, nil if it cannot be read.
func Condense(obj *unstructured.Unstructured) *Slice {
	labels := obj.GetLabels()
	_, headless := labels["service.kubernetes.io/headless"]
	slice := &Slice{
		Name: obj.GetName(), Headless: headless,
		Service: cell.Key{Namespace: cell.Shared(obj.GetNamespace()), Name: cell.Shared(labels[discoveryv1.LabelServiceName])},
	}
	content := map[string]any{}
	for _, field := range []string{"addressType", "ports"} {
		if value, set := obj.Object[field]; set {
			content[field] = value
		}
	}
	endpoints, _ := obj.Object["endpoints"].([]any)
	content["endpoints"] = withoutOrigin(endpoints)
	text, err := json.Marshal(content)
	if err != nil {
		return nil
	}
	slice.Content = string(text)
	return slice
}

// withoutOrigin returns endpoints without what has no meaning in another cluster: its nodes, pods and hints.
func withoutOrigin(endpoints []any) []any {
	result := make([]any, 0, len(endpoints))
	for _, entry := range endpoints {
		endpoint, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		kept := map[string]any{}
		for field, value := range endpoint {
			switch field {
			case "nodeName", "targetRef", "hints", "deprecatedTopology":
			default:
				kept[field] = value
			}
		}
		result = append(result, kept)
	}
	return result
}
