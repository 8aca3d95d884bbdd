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
	"k8s.io/apimachinery/pkg/types"
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

// process takes the next step for one object.
func (s *session) process(ctx context.Context, key objectKey) {
	kind := s.kinds[key.kind]
	if !kind.ready.Load() {
		return // it is queued when the kind is ready
	}
	state := s.state(key)
	action := Decide(state)
	switch action {
	case Nothing:
		s.done(key)
	case Wait:
		return // an event will queue it
	case Conflict, Foreign:
		s.block(key, Obstacle{Kind: kind.rule.Kind, Object: key.path(), Reason: action, Message: "the object in the cell is not a copy of the hub's"})
	case Retire, Finalize:
		if !s.inspections.take(key) {
			return // the end of another inspection will queue it
		}
		s.perform(ctx, key, state, action)
		for _, waiting := range s.inspections.end() {
			s.enqueue(waiting)
		}
	default:
		s.perform(ctx, key, state, action)
	}
}

// perform takes a step that needs the cell.
func (s *session) perform(ctx context.Context, key objectKey, state State, action Action) {
	began := time.Now()
	written, err := s.do(ctx, key, state, action)
	observe(s.name, state.Rule, action, began, err)
	s.conclude(ctx, key, state, action, written, err)
}

// state collects the input of a decision.
func (s *session) state(key objectKey) State {
	kind := s.kinds[key.kind]
	state := State{Rule: kind.rule, Name: key.name, Have: kind.get(key.namespace, key.name)}
	source := s.hub.kinds[key.kind].get(key.namespace, key.name)
	if source != nil && (kind.rule.wanted == nil || kind.rule.wanted(s.hub, s.name, source)) {
		state.Want = source
	}
	if kind.rule.Namespaced {
		if namespace := s.kinds[s.hub.number(namespaces)].get("", key.namespace); namespace == nil || namespace.deleting() {
			state.Namespace = NamespaceAbsent
		}
	}
	if state.Want != nil && state.Have != nil {
		s.mu.Lock()
		former := s.defaulted[key]
		s.mu.Unlock()
		state.Converged = former.written != "" && former.written == state.Want.digest && former.stored == state.Have.digest
		state.StatusConverged = former.writtenStatus != "" && former.writtenStatus == state.Want.statusDigest && former.storedStatus == state.Have.statusDigest
	}
	return state
}

// errCopiesLeft means that a namespace has copies that have not been removed yet.
var errCopiesLeft = errors.New("copies in the namespace are being removed")

// errTooEarly means that a namespace began to terminate too recently to be sure of its content.
var errTooEarly = errors.New("the namespace has only just begun to terminate")

// finalizeAfter bounds how long requests may take that were admitted before a namespace began to terminate.
const finalizeAfter = 2 * time.Second

// do executes an action. It returns the object that was written, if any.
func (s *session) do(ctx context.Context, key objectKey, state State, action Action) (*unstructured.Unstructured, error) {
	if action == Delete || action == Retire {
		if err := s.confirm(ctx, key, state); err != nil {
			return nil, err
		}
	}
	if action == Retire || action == Finalize {
		return nil, s.removeNamespace(ctx, state, action)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	switch action {
	case Create:
		return s.resource(state.Rule, key.namespace).Create(ctx, &unstructured.Unstructured{Object: state.Want.Body}, metav1.CreateOptions{FieldManager: fieldManager})
	case Update:
		return s.update(ctx, state.Rule, state.Want, state.Have)
	case UpdateStatus:
		body := bodyFor(state.Want, state.Have)
		body.Object["status"] = state.Want.Status
		return s.resource(state.Rule, key.namespace).UpdateStatus(ctx, body, metav1.UpdateOptions{FieldManager: fieldManager})
	case Delete:
		return nil, s.delete(ctx, state.Rule, state.Have)
	default:
		return nil, fmt.Errorf("unknown action %q", action)
	}
}

// errHubIsAhead means that the hub has a source that our cache does not have yet.
var errHubIsAhead = errors.New("the hub still has the object")

// confirm asks the hub itself before a copy without a source is deleted: the cache may come from an API server that lags
// behind.
func (s *session) confirm(ctx context.Context, key objectKey, state State) error {
	uid := state.Have.source()
	kind := s.hub.kinds[key.kind]
	if source := kind.get(key.namespace, key.name); source != nil && source.UID == uid {
		return nil // the source exists, and is being deleted or not wanted in this cell
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	current, err := kind.client.Namespace(key.namespace).Get(ctx, key.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("confirming that the object is gone from the hub: %w", err)
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

// delete deletes exactly the version that the decision was about.
func (c *cell) delete(ctx context.Context, rule *Rule, have *Copy) error {
	return c.resource(rule, have.Namespace).Delete(ctx, have.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: ptr.To(have.UID), ResourceVersion: ptr.To(have.ResourceVersion)},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
}

func (c *cell) resource(rule *Rule, namespace string) dynamic.ResourceInterface {
	return c.client.Resource(rule.Resource).Namespace(namespace)
}

// bodyFor returns the update of exactly the version that the decision was about. Finalizers are the cell's own.
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

// removeNamespace removes a namespace that is empty. One that will be recreated may have copies, which would keep it
// forever; they are removed first.
func (s *session) removeNamespace(ctx context.Context, state State, action Action) error {
	have := state.Have
	if action == Finalize && s.terminates(have.Name, have.UID, time.Now()) < finalizeAfter {
		return errTooEarly
	}
	inspecting, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	copies, err := s.inspect(inspecting, have)
	if err != nil {
		return err
	}
	if len(copies) > 0 {
		if state.Want == nil {
			return errCopiesLeft // they are deleted like the namespace
		}
		return s.removeCopies(inspecting, have.Name, copies)
	}
	ctx, cancel = context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if action == Retire {
		return s.delete(ctx, state.Rule, have)
	}
	if err := s.removeRootCA(ctx, have.Name); err != nil {
		return err
	}
	if err := s.finalize(ctx, have); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.terminating, have.Name)
	return nil
}

// termination is when a namespace was first seen to terminate.
type termination struct {
	uid types.UID
	at  time.Time
}

// terminates returns how long a namespace has been seen to terminate. The time of its deletion is that of another machine, whose clock may
// differ by more than the time to wait.
func (s *session) terminates(name string, uid types.UID, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.terminating[name]
	if !known || seen.uid != uid {
		seen = termination{uid, now}
		s.terminating[name] = seen
	}
	return now.Sub(seen.at)
}

// conclude handles the result of an action.
func (s *session) conclude(ctx context.Context, key objectKey, state State, action Action, written *unstructured.Unstructured, err error) {
	kind := s.kinds[key.kind]
	switch {
	case err == nil:
		s.noteDefaults(key, state, action, written)
		s.queue.Forget(key)
		s.enqueueAfter(key, confirmAfter) // usually the event of the write comes first
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
			klog.FromContext(ctx).V(1).Info("copying failed, will retry", "kind", kind.rule.Kind, "object", key.path(), "action", action, "err", err)
		}
		s.block(key, Obstacle{Kind: kind.rule.Kind, Object: key.path(), Reason: reason, Message: err.Error()})
		s.retry(key)
	}
}

// isStale reports errors which mean that our cache is behind the cell or the hub.
func isStale(err error) bool {
	return errors.Is(err, errHubIsAhead) || errors.Is(err, errCopiesLeft) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// noteDefaults notes what the cell has stored, if that differs from what was written.
func (s *session) noteDefaults(key objectKey, state State, action Action, object *unstructured.Unstructured) {
	if object == nil {
		return
	}
	stored, err := newCopy(state.Rule, object)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	noted := s.defaulted[key]
	if action == UpdateStatus {
		noted.writtenStatus, noted.storedStatus = state.Want.statusDigest, stored.statusDigest
	} else {
		noted.written, noted.stored = state.Want.digest, stored.digest
	}
	if noted.written == noted.stored && noted.writtenStatus == noted.storedStatus {
		delete(s.defaulted, key)
		return
	}
	s.defaulted[key] = noted
}
