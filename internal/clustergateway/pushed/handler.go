package pushed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustergateway/serve"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// maxReport bounds a report. It is what API servers accept.
const maxReport = 3 << 20

// ServeHTTP takes the report of the cluster in the path. Gateways have checked that the caller may report about it.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cluster := r.PathValue("cluster")
	report, err := read(w, r, cluster)
	if err != nil {
		serve.WriteError(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	answer := metricsv1alpha1.MetricsReport{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	if !m.Shows(cluster) {
		w.Header().Set(views.ElsewhereHeader, "true")
	} else if answer.Status.Resend, err = m.take(cluster, &report.Spec, time.Now()); err != nil {
		if errors.Is(err, errTooMuch) {
			serve.WriteError(w, r, apierrors.NewBadRequest(err.Error()))
			return
		}
		serve.WriteError(w, r, apierrors.NewInternalError(err))
		return
	} else if wanted := m.wantedIn(cluster); wanted != nil && wanted.Version != report.Spec.Wanted {
		answer.Status.Wanted = wanted
	}
	answer.Spec.Session, answer.Spec.Sequence = report.Spec.Session, report.Spec.Sequence
	answer.SetGroupVersionKind(metricsv1alpha1.GroupVersion.WithKind("MetricsReport"))
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer) // the gateway may have gone
}

// read reads and checks a report. Nothing of one with a mistake is taken.
func read(w http.ResponseWriter, r *http.Request, cluster string) (*metricsv1alpha1.MetricsReport, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReport))
	if err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	report := &metricsv1alpha1.MetricsReport{}
	if err := json.Unmarshal(data, report); err != nil {
		return nil, fmt.Errorf("the report is no MetricsReport: %w", err)
	}
	switch {
	case report.Name != "" && report.Name != cluster:
		return nil, fmt.Errorf("the report is of cluster %s, not of %s", report.Name, cluster)
	case report.Spec.Session == "" || report.Spec.Sequence < 1:
		return nil, errors.New("the report needs a session and a sequence from 1")
	}
	for i := range report.Spec.Items {
		if err := check(&report.Spec.Items[i], cluster); err != nil {
			return nil, fmt.Errorf("item %d of the report: %w", i, err)
		}
	}
	return report, nil
}

// check returns what is wrong with an item.
func check(item *metricsv1alpha1.WorkloadMetrics, cluster string) error {
	workload := item.Workload
	switch {
	case item.Cluster != "" && item.Cluster != cluster:
		return fmt.Errorf("it is of cluster %s, not of %s", item.Cluster, cluster)
	case item.Namespace == "" || workload.APIVersion == "" || workload.Kind == "" || workload.Name == "":
		return errors.New("it needs a namespace and the apiVersion, kind and name of a workload")
	case item.Name != "" && item.Name != nameOf(workload, cluster):
		return fmt.Errorf("its name is %s, and not %s", item.Name, nameOf(workload, cluster))
	case badSegment(item.Namespace) || badSegment(workload.Name) || badSegment(workload.Kind):
		return errors.New("its namespace, kind or name cannot be part of a name")
	case item.UID == "" || item.CreationTimestamp.IsZero():
		return errors.New("it needs the UID and the creation time of the workload")
	case item.Pods.Ready < 0 || item.Pods.Total < item.Pods.Ready:
		return errors.New("its numbers of pods are impossible")
	}
	for i := range item.Metrics {
		if err := checkSums(&item.Metrics[i], item.Pods.Total); err != nil {
			return err
		}
	}
	return nil
}

// checkSums returns what is wrong with the sums of a metric.
func checkSums(sums *metricsv1alpha1.MetricSums, total int32) error {
	pods := int64(sums.Measured.Pods) + int64(sums.Unready.Pods)
	negative := sums.Measured.Pods < 0 || sums.Unready.Pods < 0 || sums.PodsWithoutRequest < 0
	below := isNegative(sums.Measured.Requests) || isNegative(sums.Unready.Requests)
	for _, group := range sums.Missing {
		pods += int64(group.Pods)
		negative = negative || group.Pods < 0
		below = below || isNegative(group.Request)
	}
	switch {
	case negative:
		return errors.New("a number of pods is negative")
	case pods > int64(total) || sums.PodsWithoutRequest > total:
		return errors.New("a metric is of more pods than there are")
	case below || sums.Resource != "" && isNegative(&sums.Measured.Usage): // a custom metric may be below zero
		return errors.New("a request or a usage is negative")
	}
	return nil
}

func isNegative(quantity *resource.Quantity) bool { return quantity != nil && quantity.Sign() < 0 }

// badSegment reports whether a text cannot be part of a path, or is too long for a name.
func badSegment(text string) bool {
	return len(text) > maxName || len(content.IsPathSegmentName(text)) > 0
}

const maxName = 253
