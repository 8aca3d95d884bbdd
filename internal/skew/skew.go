// Package skew keeps a part from working with a control plane that another release has prepared in a way that does not go with its own: whose
// CustomResourceDefinitions are too old for it, or of a release that parts like it would harm. Package crds says which do. A control plane that cannot be
// asked changes nothing: what was last known stands.
package skew

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/crds"
)

const (
	// interval is the time between two looks.
	interval = 5 * time.Second
	timeout  = 3 * time.Second
)

// Watch follows the level of a control plane.
type Watch struct {
	plane string
	read  func(ctx context.Context) (map[string]string, error)

	mu      sync.Mutex
	known   bool
	problem error
	changed chan struct{} // closed and replaced when one of the above changes
}

// New returns a Watch of a control plane, which is called so in messages.
func New(plane string, config *rest.Config) (*Watch, error) {
	read, err := Reader(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to read the level of %s: %w", plane, err)
	}
	return &Watch{plane: plane, read: read, changed: make(chan struct{})}, nil
}

// Reader returns a function that reads the annotations of crds.Marker.
func Reader(config *rest.Config) (func(ctx context.Context) (map[string]string, error), error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	definitions := client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	return func(ctx context.Context) (map[string]string, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		marker, err := definitions.Get(ctx, crds.Marker, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return marker.Annotations, nil
	}, nil
}

// Run looks at the control plane from time to time until the context ends.
func (w *Watch) Run(ctx context.Context) { wait.UntilWithContext(ctx, w.look, interval) }

func (w *Watch) look(ctx context.Context) {
	annotations, err := w.read(ctx)
	var problem error
	switch {
	case apierrors.IsNotFound(err):
		problem = fmt.Errorf("%s does not have the API of Cellplane yet: install its CustomResourceDefinitions", w.plane)
	case apierrors.IsForbidden(err): // without this right there is no protection
	case err != nil:
		return
	default:
		if judgement := crds.Judge(annotations); judgement != nil {
			problem = fmt.Errorf("%s is of another release: %w", w.plane, judgement)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known && text(w.problem) == text(problem) {
		return
	}
	if problem != nil {
		klog.FromContext(ctx).Error(problem, "this part must not work")
	}
	w.known, w.problem = true, problem
	close(w.changed)
	w.changed = make(chan struct{})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Problem returns why the part must not work, as far as it is known.
func (w *Watch) Problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Await returns when it is known that the part may work, or with the error of the context.
func (w *Watch) Await(ctx context.Context) error {
	return w.await(ctx, func() bool { return w.known && w.problem == nil })
}

// Refused returns the problem as soon as there is one, and nil if the context ends before.
func (w *Watch) Refused(ctx context.Context) error {
	var problem error
	if err := w.await(ctx, func() bool { problem = w.problem; return problem != nil }); err != nil {
		return nil //nolint:nilerr // the end of the context is no problem
	}
	return problem
}

func (w *Watch) await(ctx context.Context, condition func() bool) error {
	for {
		w.mu.Lock()
		met, changed := condition(), w.changed
		w.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
