package autoscaler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/scale"
	"github.com/cellplane/cellplane/internal/fleet"
)

// requestTimeout is how long the gateway may take. It may wait while an object moves between cells.
const requestTimeout = 30 * time.Second

// federation is the gateway's view of all templates.
type federation struct {
	typed   client.WithWatch
	objects dynamic.Interface
}

func newFederation(config *rest.Config) (*federation, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{autoscalingv2.AddToScheme, autoscalingv1alpha1.AddToScheme, metricsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	f := &federation{}
	if f.typed, err = client.NewWithWatch(config, client.Options{Scheme: scheme, HTTPClient: http}); err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	if f.objects, err = dynamic.NewForConfigAndClient(config, http); err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	return f, nil
}

// source lists and watches a kind. Watched is called when a watch begins.
func (f *federation) source(list func() client.ObjectList, watched func()) fleet.Source {
	return fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			into := list()
			return into, f.typed.List(ctx, into, &client.ListOptions{Raw: &options})
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := f.typed.Watch(ctx, list(), &client.ListOptions{Raw: &options})
			if err == nil {
				watched()
			}
			return stream, err
		},
	}
}

// resources are those of the kinds of autoscalers.
var resources = map[schema.GroupVersionKind]schema.GroupVersionResource{
	plainKind:     plainKind.GroupVersion().WithResource("horizontalpodautoscalers"),
	federatedKind: federatedKind.GroupVersion().WithResource("federatedhpas"),
}

// writeStatus writes the status of an autoscaler. There is no other writer: who has the target writes.
func (f *federation) writeStatus(ctx context.Context, s *scaler, status *autoscalingv2.HorizontalPodAutoscalerStatus) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch, err := statusPatch(s, status)
	if err != nil {
		return err
	}
	_, err = f.objects.Resource(resources[s.GroupVersionKind]).Namespace(s.Namespace).
		Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: scale.FieldManager}, "status")
	return err
}

// statusPatch returns a merge patch. What a status does not have is removed.
func statusPatch(s *scaler, status *autoscalingv2.HorizontalPodAutoscalerStatus) ([]byte, error) {
	entries, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"currentMetrics", "lastScaleTime", "observedGeneration"} {
		if _, has := entries[field]; !has {
			entries[field] = nil
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.uid}, "status": entries})
}
