// Package autoscaler is a program that runs Kubernetes' own controller of HorizontalPodAutoscalers through scenarios. It
// reads them as lines of JSON, and writes a line with the replicas after each step. Time is that of a bubble.
package autoscaler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	defaults "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalmetrics "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	resourcemetrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
)

// interval, stabilization and the others are the same in package scenario of the main module.
const (
	interval       = 15 * time.Second
	stabilization  = time.Minute
	tolerance      = 0.1
	initialization = 5 * time.Minute
	firstReadiness = 30 * time.Second
)

var file = flag.String("scenarios", "", "the file with scenarios; the results are written to the file of the same name with .out")

type scenario struct {
	Spec     autoscalingv2.HorizontalPodAutoscalerSpec `json:"spec"`
	Replicas int32                                     `json:"replicas"`
	Steps    []step                                    `json:"steps"`
}

type step struct {
	Pods     []corev1.Pod                 `json:"pods"`
	Running  int32                        `json:"running"`
	Usage    []resourcemetrics.PodMetrics `json:"usage"`
	Custom   []custommetrics.MetricValue  `json:"custom"`
	Object   *resource.Quantity           `json:"object"`
	External []resource.Quantity          `json:"external"`
}

// TestScenarios writes the replicas of all scenarios.
func TestScenarios(t *testing.T) {
	utilruntime.ErrorHandlers = nil // they write to the log, and wait
	in, err := os.Open(*file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(*file + ".out")
	if err != nil {
		t.Fatal(err)
	}
	decoder, written := json.NewDecoder(bufio.NewReader(in)), bufio.NewWriter(out)
	encoder := json.NewEncoder(written)
	for {
		var s scenario
		if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var replicas []int32
		synctest.Test(t, func(t *testing.T) { replicas = run(t, s) })
		if t.Failed() {
			return
		}
		if err := encoder.Encode(replicas); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(written.Flush(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

// world is what the controller sees. Each time that it reads the replicas, which it does first, the next step begins.
type world struct {
	t        *testing.T
	steps    []step
	next     int
	replicas int32
	all      []int32
	pods     cache.Indexer
	done     context.CancelFunc
}

// run starts a controller, and returns the replicas after each step.
func run(t *testing.T, s scenario) []int32 {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: s.Spec}
	defaults.SetDefaults_HorizontalPodAutoscaler(hpa)
	client := fake.NewSimpleClientset(hpa) // NewClientset takes a tenth of a second
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(s.Steps)+2)*interval)
	defer cancel()
	w := &world{t: t, steps: s.Steps, replicas: s.Replicas, pods: factory.Core().V1().Pods().Informer().GetIndexer(), done: cancel}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "apps", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	controller := podautoscaler.NewHorizontalController(ctx, client.CoreV1(), w, client.AutoscalingV2(), mapper,
		metrics.NewRESTMetricsClient(usages{world: w}, customs{world: w}, externals{world: w}),
		factory.Autoscaling().V2().HorizontalPodAutoscalers(), factory.Core().V1().Pods(),
		interval, stabilization, tolerance, initialization, firstReadiness)
	factory.Start(ctx.Done())
	controller.Run(ctx, 1)
	factory.Shutdown()
	if len(w.all) != len(s.Steps) {
		t.Errorf("the controller decided %d of %d times", len(w.all), len(s.Steps))
	}
	return w.all
}

func (w *world) now() *step { return &w.steps[w.next-1] }

// Scales returns the client for the replicas of the workload.
func (w *world) Scales(string) scale.ScaleInterface { return scales{world: w} }

// advance begins the next step. After the last, it ends the run.
func (w *world) advance() bool {
	if w.next > 0 {
		w.all = append(w.all, w.replicas)
	}
	if w.next == len(w.steps) {
		w.done()
		return false
	}
	w.next++
	if start, at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Now(); !at.Equal(start.Add(time.Duration(w.next) * interval)) {
		w.t.Errorf("step %d is at %s", w.next, at)
	}
	var pods []any
	for i := range w.now().Pods {
		pods = append(pods, &w.now().Pods[i])
	}
	if err := w.pods.Replace(pods, ""); err != nil {
		w.t.Error(err)
	}
	return true
}

type scales struct {
	scale.ScaleInterface
	*world
}

func (s scales) Get(context.Context, schema.GroupResource, string, metav1.GetOptions) (*autoscalingv1.Scale, error) {
	if !s.advance() {
		return nil, errors.New("the scenario is over")
	}
	return &autoscalingv1.Scale{
		Spec:   autoscalingv1.ScaleSpec{Replicas: s.replicas},
		Status: autoscalingv1.ScaleStatus{Replicas: s.now().Running, Selector: "app=web"},
	}, nil
}

func (s scales) Update(_ context.Context, _ schema.GroupResource, scale *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	s.replicas = scale.Spec.Replicas
	return scale, nil
}

type usages struct {
	resourceclient.PodMetricsInterface
	*world
}

func (u usages) PodMetricses(string) resourceclient.PodMetricsInterface { return u }

func (u usages) List(context.Context, metav1.ListOptions) (*resourcemetrics.PodMetricsList, error) {
	return &resourcemetrics.PodMetricsList{Items: u.now().Usage}, nil
}

type customs struct{ *world }

func (c customs) RootScopedMetrics() customclient.MetricsInterface { return c }

func (c customs) NamespacedMetrics(string) customclient.MetricsInterface { return c }

func (c customs) GetForObject(schema.GroupKind, string, string, labels.Selector) (*custommetrics.MetricValue, error) {
	if c.now().Object == nil {
		return nil, errors.New("there is no metric")
	}
	return &custommetrics.MetricValue{Value: *c.now().Object}, nil
}

func (c customs) GetForObjects(schema.GroupKind, labels.Selector, string, labels.Selector) (*custommetrics.MetricValueList, error) {
	return &custommetrics.MetricValueList{Items: c.now().Custom}, nil
}

type externals struct{ *world }

func (e externals) NamespacedMetrics(string) externalclient.MetricsInterface { return e }

func (e externals) List(string, labels.Selector) (*externalmetrics.ExternalMetricValueList, error) {
	list := &externalmetrics.ExternalMetricValueList{}
	for _, value := range e.now().External {
		list.Items = append(list.Items, externalmetrics.ExternalMetricValue{Value: value})
	}
	return list, nil
}
