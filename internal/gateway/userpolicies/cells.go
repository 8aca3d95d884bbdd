package userpolicies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

const (
	pollInterval = 50 * time.Millisecond
	// cleanupTimeout bounds the removal of a probe, which goes on when the client has left.
	cleanupTimeout = 5 * time.Second
	// abandonedAfter is the age at which the probe of a gateway that has stopped is removed.
	abandonedAfter = 10 * time.Minute
	maxAnswer      = 8 << 20
)

// plane is a cell, which has to enforce policies.
type plane struct {
	name string
	// send sends a request as the gateway.
	send send
	// target is the request that a probe acts on.
	target target
}

type send func(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error)

// target is a resource that the gateway may create in dry runs.
type target struct{ group, version, resource, kind, namespace string }

var inCells = target{version: "v1", resource: "configmaps", kind: "ConfigMap", namespace: metav1.NamespaceDefault}

// awaited is what all cells must have a copy of, or must no longer have.
type awaited struct {
	kind     string
	resource schema.GroupVersionResource
	name     string
	// uid and generation are those of the object on the hub, empty after a deletion.
	uid, generation string
	// probe returns a probe that is in force when the copy is.
	probe func(on target) *probe
}

// awaitAll waits until all cells enforce what was written, and returns the names of those that do not.
func awaitAll(ctx context.Context, planes []*plane, want awaited, wait time.Duration) []string {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var (
		mu    sync.Mutex
		late  []string
		group errgroup.Group
	)
	for _, p := range planes {
		group.Go(func() error {
			if err := p.enforces(waiting, want); err != nil {
				klog.FromContext(ctx).V(1).Info("a cell does not enforce a policy yet", "cell", p.name, "kind", want.kind, "name", want.name, "err", err)
				mu.Lock()
				defer mu.Unlock()
				late = append(late, p.name)
			}
			return nil
		})
	}
	_ = group.Wait() // the goroutines return no errors
	slices.Sort(late)
	return late
}

// enforces waits until the API server enforces what was written.
func (p *plane) enforces(ctx context.Context, want awaited) error {
	if err := poll(ctx, func() (bool, error) { return p.has(ctx, want) }); err != nil {
		return fmt.Errorf("waiting for the copy: %w", err)
	}
	if err := want.probe(p.target).run(ctx, p); err != nil {
		return fmt.Errorf("waiting for the API server: %w", err)
	}
	return nil
}

// has reports whether a cell has the copy, or none if there should be none.
func (p *plane) has(ctx context.Context, want awaited) (bool, error) {
	answer, err := p.send(ctx, http.MethodGet, pathOf(want.resource, want.name), nil, nil)
	if apierrors.IsNotFound(err) {
		return want.uid == "", nil
	}
	if err != nil {
		return false, err
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &object); err != nil {
		return false, err
	}
	annotations := object.Annotations
	return want.uid != "" && annotations[names.CopiedFromHubAnnotation] == want.uid && annotations[names.SourceGenerationAnnotation] == want.generation, nil
}

// probe is a policy with its binding, or a webhook, that acts on one request only.
type probe struct {
	id      string
	target  target
	objects []probeObject
	// seen reports whether the result of the request shows the probe.
	seen func(answer []byte, err error) bool
}

type probeObject struct {
	collection string // its path
	content    map[string]any
}

func newProbe(on target) *probe {
	return &probe{id: "cellplane-probe-" + rand.String(10), target: on}
}

// selector selects the object that the probe acts on.
func (p *probe) selector() map[string]any {
	return map[string]any{"matchLabels": map[string]any{names.ProbeLabel: p.id}}
}

// rules select the request that the probe acts on, but for its object.
func (p *probe) rules() []any {
	return []any{map[string]any{
		"apiGroups": []any{p.target.group}, "apiVersions": []any{p.target.version}, "resources": []any{p.target.resource}, "operations": []any{"CREATE"},
	}}
}

// match selects the request that the probe acts on.
func (p *probe) match() map[string]any {
	return map[string]any{"objectSelector": p.selector(), "resourceRules": p.rules()}
}

// annotation is a CEL expression that adds an annotation to the object that the probe acts on.
func (p *probe) annotation() string {
	return `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"seen": "` + p.id + `"}}]`
}

// probeFor returns a probe that is in force when the objects of a kind are that were stored before it.
func probeFor(kind userpolicy.Kind, on target) *probe {
	p := newProbe(on)
	id, match := p.id, p.match()
	switch kind.Resource.Resource {
	case "validatingadmissionpolicies", "validatingadmissionpolicybindings":
		p.add("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "spec", map[string]any{
			"failurePolicy": "Ignore", "matchConstraints": match, "validations": []any{map[string]any{"expression": "false"}},
		})
		p.add("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "spec", map[string]any{"policyName": id, "validationActions": []any{"Deny"}})
		p.seen = func(_ []byte, err error) bool { return err != nil && strings.Contains(err.Error(), "'"+id+"'") }
	case "mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
		p.add("mutatingadmissionpolicies", "MutatingAdmissionPolicy", "spec", map[string]any{
			"failurePolicy": "Ignore", "reinvocationPolicy": "Never", "matchConstraints": match,
			"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{"expression": p.annotation()}}},
		})
		p.add("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", "spec", map[string]any{"policyName": id})
		p.seen = func(answer []byte, err error) bool {
			return err == nil && bytes.Contains(answer, []byte(`"seen":"`+id+`"`))
		}
	default: // a webhook that nobody serves, which the API server reports
		name := id + ".cellplane.io"
		p.add(kind.Resource.Resource, kind.Kind, "webhooks", []any{map[string]any{
			"name": name, "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "timeoutSeconds": 1,
			"objectSelector": p.selector(), "rules": p.rules(), "clientConfig": map[string]any{"url": "https://127.0.0.1:1/"},
		}})
		p.seen = func(_ []byte, err error) bool { return err != nil && strings.Contains(err.Error(), `"`+name+`"`) }
	}
	return p
}

// add adds an object to the probe.
func (p *probe) add(resource, kind, field string, content any) {
	p.objects = append(p.objects, probeObject{
		collection: pathOf(schema.GroupVersionResource{Group: userpolicy.Group, Version: "v1", Resource: resource}, ""),
		content: map[string]any{
			"apiVersion": userpolicy.Group + "/v1", "kind": kind, field: content,
			"metadata": map[string]any{"name": p.id, "labels": map[string]any{names.ProbeLabel: p.id}},
		},
	})
}

// path returns the path of the target's collection.
func (t target) path() string {
	prefix := "/api/"
	if t.group != "" {
		prefix = "/apis/" + t.group + "/"
	}
	return prefix + t.version + "/namespaces/" + t.namespace + "/" + t.resource
}

// object returns an object that a probe acts on.
func (t target) object(id string) ([]byte, error) {
	version := schema.GroupVersion{Group: t.group, Version: t.version}
	return json.Marshal(map[string]any{"apiVersion": version.String(), "kind": t.kind, "metadata": map[string]any{"name": id, "labels": map[string]any{names.ProbeLabel: id}}})
}

// run installs the probe, waits until it acts, and removes it.
func (p *probe) run(ctx context.Context, on *plane) error {
	defer p.remove(ctx, on)
	for _, object := range p.objects {
		body, err := json.Marshal(object.content)
		if err != nil {
			return err
		}
		if _, err := on.send(ctx, http.MethodPost, object.collection, nil, body); err != nil {
			return fmt.Errorf("installing a probe: %w", err)
		}
	}
	request, err := p.target.object(p.id)
	if err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		answer, err := on.send(ctx, http.MethodPost, p.target.path(), url.Values{"dryRun": {metav1.DryRunAll}}, request)
		if p.seen(answer, err) {
			return true, nil
		}
		return false, err
	})
}

// remove deletes the probe, and those that gateways have left behind.
func (p *probe) remove(ctx context.Context, on *plane) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for _, object := range slices.Backward(p.objects) {
		answer, err := on.send(ctx, http.MethodGet, object.collection, url.Values{"labelSelector": {names.ProbeLabel}}, nil)
		if err != nil {
			continue
		}
		var list metav1.PartialObjectMetadataList
		if json.Unmarshal(answer, &list) != nil {
			continue
		}
		for i := range list.Items {
			if item := &list.Items[i]; item.Name == p.id || time.Since(item.CreationTimestamp.Time) > abandonedAfter {
				_, _ = on.send(ctx, http.MethodDelete, object.collection+"/"+item.Name, nil, nil) // the next probe tries again
			}
		}
	}
}

func pathOf(resource schema.GroupVersionResource, name string) string {
	path := "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// cells returns the cells of a view. The epoch may change while they are waited for.
func cells(view *topology.View, epoch func() int64) []*plane {
	var all []*plane
	for _, i := range view.Cells() {
		all = append(all, &plane{name: view.Name(i), send: toCell(view.Upstreams[i], epoch), target: inCells})
	}
	return all
}

// toCell sends requests to a cell; the upstream is nil if it cannot be connected to.
func toCell(upstream *fleet.Upstream, epoch func() int64) send {
	return func(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
		if upstream == nil {
			return nil, errors.New("the cell cannot be connected to")
		}
		return sendAsGateway(ctx, upstream, forward.ToCell(epoch()), method, path, query, body)
	}
}

func sendAsGateway(ctx context.Context, upstream *fleet.Upstream, scope forward.Scope, method, path string, query url.Values, body []byte) ([]byte, error) {
	response, err := upstream.RoundTrip(forward.OwnRequest(ctx, scope, method, path, query, body))
	if response, err = forward.Accepted(upstream.Name(), response, err); err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := forward.ReadAll(ctx, response.Body, response.ContentLength, maxAnswer, 1)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusBadRequest {
		return answer, nil
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil || status.Code == 0 {
		return nil, fmt.Errorf("the cell answered %d", response.StatusCode)
	}
	return nil, &apierrors.StatusError{ErrStatus: status}
}

// poll repeats a check until it succeeds or the context ends. An error is one of this attempt only.
func poll(ctx context.Context, check func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		done, last := check()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-ticker.C:
		}
	}
}
