package replicate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// fieldManager owns the fields of copies.
const fieldManager = "cellplane-hub-manager"

// work takes objects from the queue until it is shut down.
func (s *session) work(ctx context.Context) {
	for {
		key, _, shutdown := s.queue.GetWithPriority()
		if shutdown {
			return
		}
		s.process(ctx, key)
		s.queue.Done(key)
	}
}

// process does the next thing about one object.
func (s *session) process(ctx context.Context, key objectKey) {
	kind := s.kinds[key.kind]
	if !kind.ready.Load() {
		return // it is queued again when it is
	}
	situation := s.look(key)
	action := Decide(situation)
	switch action {
	case Nothing:
		s.done(key)
	case Wait:
		return // for an event that queues it again
	case Conflict, Foreign:
		s.meet(key, Obstacle{Kind: kind.rule.Kind, Object: key.path(), Reason: action, Message: "it is in the cell and was not copied from the hub"})
	default:
		began := time.Now()
		made, err := s.do(ctx, key, situation, action)
		observe(s.name, kind.rule, action, began, err)
		s.conclude(ctx, key, situation, action, made, err)
	}
}

// look gathers what a decision depends on.
func (s *session) look(key objectKey) Situation {
	kind := s.kinds[key.kind]
	situation := Situation{Rule: kind.rule, Name: key.name, Have: kind.get(key.namespace, key.name)}
	source := s.hub.kinds[key.kind].get(key.namespace, key.name)
	if source != nil && (kind.rule.wanted == nil || kind.rule.wanted(s.hub, s.name, source)) {
		situation.Want = source
	}
	if kind.rule.Namespaced {
		if namespace := s.kinds[s.hub.number(namespaces)].get("", key.namespace); namespace == nil || namespace.deleting() {
			situation.Namespace = NamespaceAbsent
		}
	}
	if situation.Want != nil && situation.Have != nil {
		s.mu.Lock()
		settled := s.settled[key]
		s.mu.Unlock()
		situation.Settled = settled.given != "" && settled.given == situation.Want.digest && settled.made == situation.Have.digest
		situation.StatusSettled = settled.givenStatus != "" && settled.givenStatus == situation.Want.statusDigest && settled.madeStatus == situation.Have.statusDigest
	}
	return situation
}

// errCopiesLeft means that a namespace holds copies that have not been removed yet.
var errCopiesLeft = errors.New("copies in it are being removed")

// errTooEarly means that a namespace is terminating for too short a time to be sure of its content.
var errTooEarly = errors.New("it began to terminate just now")

// finalizeAfter is how long requests that were let in before a namespace began to terminate may take to end.
const finalizeAfter = 2 * time.Second

// do carries a decision out. It returns the object that was written, if one was.
func (s *session) do(ctx context.Context, key objectKey, situation Situation, action Action) (*unstructured.Unstructured, error) {
	if action == Delete || action == Retire {
		if err := s.confirm(ctx, key, situation); err != nil {
			return nil, err
		}
	}
	if action == Retire || action == Finalize {
		return nil, s.dismiss(ctx, situation, action)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	switch action {
	case Create:
		return s.resource(situation.Rule, key.namespace).Create(ctx, &unstructured.Unstructured{Object: situation.Want.Body}, metav1.CreateOptions{FieldManager: fieldManager})
	case Update:
		return s.update(ctx, situation.Rule, situation.Want, situation.Have)
	case UpdateStatus:
		body := bodyFor(situation.Want, situation.Have)
		body.Object["status"] = situation.Want.Status
		return s.resource(situation.Rule, key.namespace).UpdateStatus(ctx, body, metav1.UpdateOptions{FieldManager: fieldManager})
	case Delete:
		return nil, s.delete(ctx, situation.Rule, situation.Have)
	default:
		return nil, fmt.Errorf("no way is known to %s", action)
	}
}

// errHubIsAhead means that the hub has a source that our cache of it does not have yet.
var errHubIsAhead = errors.New("the hub has it")

// confirm asks the hub itself before a copy is removed for want of its source. A cache may have been filled by an API
// server that is behind, and must not cost a cell what the hub has.
func (s *session) confirm(ctx context.Context, key objectKey, situation Situation) error {
	uid := situation.Have.source()
	kind := s.hub.kinds[key.kind]
	if source := kind.get(key.namespace, key.name); source != nil && source.UID == uid {
		return nil // it is there, and being deleted or not wanted in this cell
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	current, err := kind.client.Namespace(key.namespace).Get(ctx, key.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("asking the hub whether it is gone: %w", err)
	case current.GetUID() == uid:
		return errHubIsAhead
	default:
		return nil
	}
}

// update overwrites a copy.
func (c *cell) update(ctx context.Context, rule *Rule, want *Source, have *Copy) (*unstructured.Unstructured, error) {
	return c.resource(rule, want.Namespace).Update(ctx, bodyFor(want, have), metav1.UpdateOptions{FieldManager: fieldManager})
}

// delete removes exactly the object that was decided about.
func (c *cell) delete(ctx context.Context, rule *Rule, have *Copy) error {
	return c.resource(rule, have.Namespace).Delete(ctx, have.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: ptr.To(have.UID), ResourceVersion: ptr.To(have.ResourceVersion)},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
}

func (c *cell) resource(rule *Rule, namespace string) dynamic.ResourceInterface {
	return c.client.Resource(rule.Resource).Namespace(namespace)
}

// bodyFor returns what to write over exactly the object that was decided about. Finalizers are the cell's own.
func bodyFor(want *Source, have *Copy) *unstructured.Unstructured {
	body := maps.Clone(want.Body)
	metadata := maps.Clone(body["metadata"].(map[string]any))
	metadata["uid"], metadata["resourceVersion"] = string(have.UID), have.ResourceVersion
	if len(have.Finalizers) > 0 {
		finalizers := make([]any, len(have.Finalizers))
		for i, finalizer := range have.Finalizers {
			finalizers[i] = finalizer
		}
		metadata["finalizers"] = finalizers
	}
	body["metadata"] = metadata
	return &unstructured.Unstructured{Object: body}
}

// dismiss lets go of a namespace that is empty. One that is to be made again may hold copies, which are removed first:
// they would keep it from ever going.
func (s *session) dismiss(ctx context.Context, situation Situation, action Action) error {
	have := situation.Have
	if action == Finalize && time.Since(have.DeletionTimestamp.Time) < finalizeAfter {
		return errTooEarly
	}
	select {
	case s.inspections <- struct{}{}:
		defer func() { <-s.inspections }()
	case <-ctx.Done():
		return ctx.Err()
	}
	inspecting, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	copies, err := s.inspect(inspecting, have.Name)
	if err != nil {
		return err
	}
	if len(copies) > 0 {
		if situation.Want == nil {
			return errCopiesLeft // they are about to go, like the namespace
		}
		return s.removeCopies(inspecting, have.Name, copies)
	}
	ctx, cancel = context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if action == Retire {
		return s.delete(ctx, situation.Rule, have)
	}
	return s.finalize(ctx, have)
}

// conclude draws the consequences of what was done.
func (s *session) conclude(ctx context.Context, key objectKey, situation Situation, action Action, made *unstructured.Unstructured, err error) {
	kind := s.kinds[key.kind]
	switch {
	case err == nil:
		s.settle(key, situation, action, made)
		s.queue.Forget(key)
		s.enqueueAfter(key, confirmAfter) // the event of the write comes first
	case ctx.Err() != nil:
	case errors.Is(err, errTooEarly):
		s.enqueueAfter(key, finalizeAfter)
	case isStale(err):
		s.retry(key)
	default:
		reason := action
		if errors.Is(err, errNotEmpty) {
			reason = Wait
		} else {
			klog.FromContext(ctx).V(1).Info("Copying failed and will be tried again", "kind", kind.rule.Kind, "object", key.path(), "action", action, "err", err)
		}
		s.meet(key, Obstacle{Kind: kind.rule.Kind, Object: key.path(), Reason: reason, Message: err.Error()})
		s.retry(key)
	}
}

// isStale reports errors that mean that the cell or the hub is ahead of our cache, which will catch up.
func isStale(err error) bool {
	return errors.Is(err, errHubIsAhead) || errors.Is(err, errCopiesLeft) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// settle remembers what the cell made of what it was given, where that differs.
func (s *session) settle(key objectKey, situation Situation, action Action, object *unstructured.Unstructured) {
	if object == nil {
		return
	}
	made, err := newCopy(situation.Rule, object)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	settled := s.settled[key]
	if action == UpdateStatus {
		settled.givenStatus, settled.madeStatus = situation.Want.statusDigest, made.statusDigest
	} else {
		settled.given, settled.made = situation.Want.digest, made.digest
	}
	if settled.given == settled.made && settled.givenStatus == settled.madeStatus {
		delete(s.settled, key)
		return
	}
	s.settled[key] = settled
}
