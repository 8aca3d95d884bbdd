package usage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cellplane/cellplane/internal/autoscale"
)

const (
	customGroup   = "custom.metrics.k8s.io"
	externalGroup = "external.metrics.k8s.io"
	// answerTime is how long an API of the cluster may take to answer. What it has not answered by then is reported as a failure, and does not delay the rest.
	answerTime = 5 * time.Second
	// askedAtOnce is how many metrics an API is asked for at the same time.
	askedAtOnce = 8
)

var errNoAnswer = fmt.Errorf("there was no answer within %s", answerTime)

// versions are those that can be read, the best one first.
var versions = map[string][]string{customGroup: {"v1beta2", "v1beta1"}, externalGroup: {"v1beta1"}}

// values reads metrics of the custom and the external metrics API of the cluster.
type values struct {
	client rest.Interface
	kinds  *kinds
}

func newValues(member *rest.Config) (*values, error) {
	config := rest.CopyConfig(member)
	config.QPS, config.Burst, config.Timeout = -1, 0, answerTime // askedAtOnce limits requests
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, http)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &values{client: client.RESTClient(), kinds: &kinds{mapper: mapper}}, nil
}

// question is a metric of a namespace. It can be compared: workloads may ask the same.
type question struct {
	autoscale.Metric
	namespace string
	// pods selects pods, for a metric of pods.
	pods string
}

// answer is what the cluster knows.
type answer struct {
	// samples are by pod, for a metric of pods.
	samples map[string]autoscale.Sample
	// value is that of an object, or the sum of the series of an external metric, in thousandths.
	value int64
	err   error
}

// ask returns an answer to each question. It asks for nothing if there are none. The APIs are served by different adapters: one that does not answer takes nothing from the other.
func (v *values) ask(ctx context.Context, questions map[question]bool) map[question]answer {
	if len(questions) == 0 {
		return nil
	}
	answers := make(map[question]answer, len(questions))
	var mu sync.Mutex
	var wait sync.WaitGroup
	for group, asked := range byGroup(questions) {
		wait.Go(func() {
			v.askGroup(ctx, group, inTurn(asked), func(q question, a answer) {
				mu.Lock()
				defer mu.Unlock()
				answers[q] = a
			})
		})
	}
	wait.Wait()
	return answers
}

// askGroup asks questions of one API, in their order.
func (v *values) askGroup(ctx context.Context, name string, questions []question, answered func(question, answer)) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	version, err := v.served(ctx, name)
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for _, q := range questions {
		if err != nil {
			answered(q, answer{err: err})
			continue
		}
		group.Go(func() error {
			answered(q, v.answer(ctx, version, q))
			return nil
		})
	}
	_ = group.Wait() // each answer has its error
}

// byGroup returns questions by the API that they are about.
func byGroup(questions map[question]bool) map[string][]question {
	groups := map[string][]question{}
	for q := range questions {
		groups[q.group()] = append(groups[q.group()], q)
	}
	return groups
}

// inTurn returns questions with one of each namespace, then the next one of each, and so on: if there are too many for the time, no namespace takes all of it.
func inTurn(questions []question) []question {
	namespaces := map[string][]question{}
	for _, q := range questions {
		namespaces[q.namespace] = append(namespaces[q.namespace], q)
	}
	turns := make([]question, 0, len(questions))
	for len(namespaces) > 0 {
		for namespace, left := range namespaces {
			turns = append(turns, left[0])
			if namespaces[namespace] = left[1:]; len(left) == 1 {
				delete(namespaces, namespace)
			}
		}
	}
	return turns
}

// group returns the API that has the metric.
func (q question) group() string {
	if q.External {
		return externalGroup
	}
	return customGroup
}

// served returns the version of a group that the cluster serves.
func (v *values) served(ctx context.Context, group string) (string, error) {
	found := &metav1.APIGroup{}
	switch err := get(ctx, v.client.Get().AbsPath("/apis", group), found); {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("the cluster does not serve %s", group)
	case err != nil:
		return "", err
	}
	for _, version := range versions[group] {
		if slices.ContainsFunc(found.Versions, func(served metav1.GroupVersionForDiscovery) bool { return served.Version == version }) {
			return version, nil
		}
	}
	return "", fmt.Errorf("the cluster serves no known version of %s", group)
}

// get reads a response as JSON.
func get(ctx context.Context, request *rest.Request, into any) error {
	result := request.SetHeader("Accept", "application/json").Do(ctx)
	switch err := result.Error(); { // with what the adapter says
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return errNoAnswer
	case err != nil:
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("the answer is not what it should be: %w", err)
	}
	return nil
}

func (v *values) answer(ctx context.Context, version string, q question) answer {
	if err := q.check(); err != nil {
		return answer{err: err}
	}
	if ctx.Err() != nil {
		return answer{err: errNoAnswer}
	}
	request := v.client.Get()
	prefix := []string{"/apis", q.group(), version, "namespaces", q.namespace}
	switch {
	case q.External:
		return external(ctx, request.AbsPath(append(prefix, q.Name)...), q)
	case q.OfPods():
		return ofPods(ctx, request.AbsPath(append(prefix, "pods", "*", q.Name)...), q)
	}
	// A namespace describes itself: autoscalers do not see other ones.
	if q.Object.Kind == "Namespace" && schema.FromAPIVersionAndKind(q.Object.APIVersion, "").Group == "" {
		return ofObject(ctx, request.AbsPath(append(prefix, "metrics", q.Name)...), q)
	}
	resource, err := v.kinds.resource(ctx, schema.FromAPIVersionAndKind(q.Object.APIVersion, q.Object.Kind).GroupKind())
	switch {
	case errors.Is(err, errNoAnswer):
		return answer{err: err}
	case err != nil:
		return answer{err: fmt.Errorf("the cluster does not know the kind %s of %s: %w", q.Object.Kind, q.Object.APIVersion, err)}
	}
	return ofObject(ctx, request.AbsPath(append(prefix, resource.String(), q.Object.Name, q.Name)...), q)
}

// check refuses names that would lead to another path. API servers do not check those of all autoscalers.
func (q question) check() error {
	names := []string{q.Name}
	if q.Object.Kind != "" || q.Object.Name != "" {
		names = append(names, q.Object.Name)
	}
	for _, name := range names {
		if name == "" {
			return errors.New("the name of a metric or of its object is empty")
		}
		if wrong := content.IsPathSegmentName(name); len(wrong) > 0 {
			return fmt.Errorf("%q cannot be the name of a metric or an object: it %s", name, strings.Join(wrong, ", "))
		}
	}
	return nil
}

func ofPods(ctx context.Context, request *rest.Request, q question) answer {
	list, err := custom(ctx, request.Param("labelSelector", q.pods), q)
	return answer{samples: autoscale.CustomSamples(list.Items), err: err}
}

func ofObject(ctx context.Context, request *rest.Request, q question) answer {
	list, err := custom(ctx, request, q)
	switch {
	case err != nil:
		return answer{err: err}
	case len(list.Items) != 1:
		return answer{err: fmt.Errorf("there are %d values for one object", len(list.Items))}
	}
	return answer{value: list.Items[0].Value.MilliValue()}
}

// custom reads a list of the custom metrics API. What is used of it is the same in all versions.
func custom(ctx context.Context, request *rest.Request, q question) (*v1beta2.MetricValueList, error) {
	list := &v1beta2.MetricValueList{}
	if q.Selector != "" {
		request = request.Param("metricLabelSelector", q.Selector)
	}
	return list, get(ctx, request, list)
}

func external(ctx context.Context, request *rest.Request, q question) answer {
	list := &externalv1beta1.ExternalMetricValueList{}
	if q.Selector != "" {
		request = request.Param("labelSelector", q.Selector)
	}
	if err := get(ctx, request, list); err != nil {
		return answer{err: err}
	}
	if len(list.Items) == 0 {
		return answer{err: errors.New("it has no series")}
	}
	series := make([]int64, len(list.Items))
	for i := range list.Items {
		series[i] = list.Items[i].Value.MilliValue()
	}
	return answer{value: autoscale.Total(series)}
}
