package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// FieldManager is the field manager of engines in their cell.
const FieldManager = "cellplane-engine"

// requestTimeout is how long the cell may take to answer a request.
const requestTimeout = 30 * time.Second

// The response to every write goes into the cache, so that the next stage sees it at once.

// CreateBinding creates a binding.
func (c *Cell) CreateBinding(ctx context.Context, binding *workv1alpha2.ResourceBinding) (*workv1alpha2.ResourceBinding, error) {
	return c.keepBinding(c.remote.Create(ctx, binding))
}

// UpdateBinding updates all but the status of a binding, unless it has changed since it was read.
func (c *Cell) UpdateBinding(ctx context.Context, binding *workv1alpha2.ResourceBinding) (*workv1alpha2.ResourceBinding, error) {
	return c.keepBinding(c.remote.Update(ctx, binding))
}

// UpdateBindingStatus updates the status of a binding, unless it has changed since it was read. Only the status is
// sent.
func (c *Cell) UpdateBindingStatus(ctx context.Context, binding *workv1alpha2.ResourceBinding, status *workv1alpha2.ResourceBindingStatus) (*workv1alpha2.ResourceBinding, error) {
	return c.keepBinding(c.remote.updateStatus(ctx, &workv1alpha2.ResourceBinding{ObjectMeta: onlyVersion(binding), Status: *status}))
}

// DeleteBinding deletes a binding with this UID.
func (c *Cell) DeleteBinding(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	return c.remote.Delete(ctx, binding, &metav1.Preconditions{UID: &binding.UID})
}

func (c *Cell) keepBinding(binding *workv1alpha2.ResourceBinding, err error) (*workv1alpha2.ResourceBinding, error) {
	if err != nil {
		return nil, err
	}
	_, kept, _ := bindingResource(binding)
	c.Bindings(binding.Namespace).Set(kept)
	return binding, nil
}

// CreateWork creates a Work.
func (c *Cell) CreateWork(ctx context.Context, work *workv1alpha1.Work) (*Work, error) {
	return c.writeWork(ctx, "creating", keyOf(work), c.works("POST", work.Namespace).Body(work), func(answer *metav1.ObjectMeta) *Work {
		written := &workv1alpha1.Work{ObjectMeta: *answer, Spec: work.Spec}
		return c.condenseWork(written, nil)
	})
}

// UpdateWork replaces the spec of a Work and our labels and annotations, unless it has changed since it was read.
// Labels and annotations of others stay; empty ones are left out. The whole Work is sent: a patch costs the API server
// more than twice as much, because it encodes, merges and decodes the stored Work.
func (c *Cell) UpdateWork(ctx context.Context, now *Work, wanted *workv1alpha1.Work) (*Work, error) {
	body := &workv1alpha1.Work{ObjectMeta: now.updated(&wanted.ObjectMeta), Spec: wanted.Spec}
	return c.writeWork(ctx, "updating", now.Key, c.works("PUT", now.Namespace).Name(now.Name).Body(body), func(answer *metav1.ObjectMeta) *Work {
		written := c.condenseWork(&workv1alpha1.Work{ObjectMeta: *answer, Spec: wanted.Spec}, nil)
		written.takeStatus(now)
		return written
	})
}

// UpdateWorkStatus updates the status of a Work, unless it has changed since it was read. Only the status is sent.
func (c *Cell) UpdateWorkStatus(ctx context.Context, now *Work, status *workv1alpha1.WorkStatus) (*Work, error) {
	body := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: now.Namespace, Name: now.Name, UID: now.UID, ResourceVersion: now.Version}, Status: *status}
	return c.writeWork(ctx, "updating the status of", now.Key, c.works("PUT", now.Namespace).Name(now.Name).SubResource("status").Body(body), func(answer *metav1.ObjectMeta) *Work {
		written := *now
		written.Version, written.Conditions, written.StatusDigest = answer.ResourceVersion, CompactConditions(status.Conditions), StatusDigest(status.ManifestStatuses)
		return &written
	})
}

// ReleaseWork removes our finalizer from a Work.
func (c *Cell) ReleaseWork(ctx context.Context, now *Work) error {
	finalizers := slices.DeleteFunc(slices.Clone(now.Finalizers), func(f string) bool { return f == names.ExecutionFinalizer })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": now.Version}})
	if err != nil {
		return fmt.Errorf("releasing Work %s: %w", now.Key, err)
	}
	released, err := c.writeWork(ctx, "releasing", now.Key, c.works("PATCH", now.Namespace).Name(now.Name).SetHeader("Content-Type", string(types.MergePatchType)).Body(patch), func(answer *metav1.ObjectMeta) *Work {
		written := *now
		written.Version, written.Finalizers = answer.ResourceVersion, finalizers
		return &written
	})
	if err == nil && len(finalizers) == 0 && !c.Works.copies.apart(c.Works.Get(now.Key), released) {
		// The response is the Work as it last was, but without finalizers it is deleted.
		c.Works.remove(now.Key, Version(released.Version))
	}
	return ignoreNotFound(err)
}

// DeleteWork deletes a Work with this UID.
func (c *Cell) DeleteWork(ctx context.Context, now *Work) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.works("DELETE", now.Namespace).Name(now.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID}}).Do(ctx).Get()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Work %s: %w", now.Key, err)
	}
	if work, held := answer.(*workv1alpha1.Work); held && err == nil {
		c.Works.put(now.Key, c.condenseWork(work, now), Version(work.ResourceVersion))
	}
	return nil
}

// ReadWork reads a Work with its manifests.
func (c *Cell) ReadWork(ctx context.Context, key Key) (*Work, error) {
	answer, err := c.GetWork(ctx, key)
	if err != nil {
		return nil, err
	}
	work := c.condenseWork(answer, nil)
	c.Works.put(key, work, Version(answer.ResourceVersion))
	return work, nil
}

// GetWork reads a Work as it is stored.
func (c *Cell) GetWork(ctx context.Context, key Key) (*workv1alpha1.Work, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer := &workv1alpha1.Work{}
	if err := c.works("GET", key.Namespace).Name(key.Name).Do(ctx).Into(answer); err != nil {
		return nil, fmt.Errorf("reading Work %s: %w", key, err)
	}
	return answer, nil
}

// ReadWorkStatus reads the status of a Work.
func (c *Cell) ReadWorkStatus(ctx context.Context, key Key) (*workv1alpha1.WorkStatus, error) {
	work, err := c.GetWork(ctx, key)
	if err != nil {
		return nil, err
	}
	return &work.Status, nil
}

func (c *Cell) works(verb, namespace string) *rest.Request {
	request := c.typed[workv1alpha1.GroupVersion].Verb(verb).Namespace(namespace).Resource("works")
	if verb == "GET" || verb == "DELETE" {
		return request
	}
	return request.Param("fieldManager", FieldManager)
}

// onlyMetadata requests only the metadata in the response: the rest is known, and Works are large.
const onlyMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// writeWork sends a write and caches the resulting Work, which is built from the metadata in the response.
func (c *Cell) writeWork(ctx context.Context, doing string, key Key, request *rest.Request, result func(answer *metav1.ObjectMeta) *Work) (*Work, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := request.SetHeader("Accept", onlyMetadata).Do(ctx).Raw()
	if apierrors.IsRequestEntityTooLargeError(err) {
		return nil, fmt.Errorf("%s Work %s: the object is too large for the API server; make the template smaller: %w", doing, key, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s Work %s: %w", doing, key, err)
	}
	var answer struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, fmt.Errorf("%s Work %s: decoding the response: %w", doing, key, err)
	}
	work := result(&answer.Metadata)
	c.Works.put(key, work, Version(answer.Metadata.ResourceVersion))
	return work, nil
}

// PatchTemplate sends a merge patch to a template.
func (c *Cell) PatchTemplate(ctx context.Context, t *Template, patch map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patching %s: %w", t.Key(), err)
	}
	obj, err := c.template(t).Patch(ctx, t.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("patching %s: %w", t.Key(), err)
	}
	c.setTemplate(t, obj)
	return nil
}

// UpdateTemplate changes a template, unless somebody else has changed it since it was read.
func (c *Cell) UpdateTemplate(ctx context.Context, t *Template, obj *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.template(t).Update(ctx, obj, metav1.UpdateOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("updating %s: %w", t.Key(), err)
	}
	c.setTemplate(t, answer)
	return nil
}

// UpdateTemplateStatus writes the status of a template, unless it has changed since it was read.
func (c *Cell) UpdateTemplateStatus(ctx context.Context, t *Template, obj *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.template(t).UpdateStatus(ctx, obj, metav1.UpdateOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("updating the status of %s: %w", t.Key(), err)
	}
	c.setTemplate(t, answer)
	return nil
}

func (c *Cell) template(t *Template) dynamic.ResourceInterface {
	resource := c.objects.Resource(t.Kind.GVR())
	if t.Namespace == "" {
		return resource
	}
	return resource.Namespace(t.Namespace)
}

func (c *Cell) setTemplate(t *Template, obj *unstructured.Unstructured) {
	if store := c.Templates.store(t.Kind.GroupVersionKind); store != nil {
		store.Set(obj)
	}
}

// EnsureNamespace creates a namespace that does not exist.
func (c *Cell) EnsureNamespace(ctx context.Context, name string) error {
	if c.Namespaces.Get(Key{Name: name}) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer := &corev1.Namespace{}
	err := c.typed[corev1.SchemeGroupVersion].Post().Resource("namespaces").Param("fieldManager", FieldManager).
		Body(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}).Do(ctx).Into(answer)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	c.Namespaces.Set(answer)
	return nil
}

func onlyVersion(binding *workv1alpha2.ResourceBinding) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: binding.Namespace, Name: binding.Name, UID: binding.UID, ResourceVersion: binding.ResourceVersion}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
