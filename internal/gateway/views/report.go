package views

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// Reports sends the MetricsReports of agents to all cluster-gateways, so that each replica has the metrics of all clusters
// of its share.
type Reports struct {
	// Views has the cluster-gateways; it is nil if there are none.
	Views *Views
	// Next serves all other requests.
	Next http.Handler
}

const (
	// reportTimeout bounds how long a replica delays an agent.
	reportTimeout = 10 * time.Second
	// maxReportAnswer bounds the answer to a report, which has the metrics of all autoscalers.
	maxReportAnswer = 64 << 20
)

// ServeHTTP implements http.Handler.
func (h *Reports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest || info.APIGroup != views.Metrics.Group || info.Resource != reports.Resource {
		h.Next.ServeHTTP(w, r)
		return
	}
	switch {
	case h.Views == nil:
		forward.WriteError(w, r, apierrors.NewServiceUnavailable("this gateway has no cluster-gateway, which takes the reports of agents"))
	case info.Verb != "create" || info.Subresource != "" || info.APIVersion != reports.Version:
		forward.WriteError(w, r, apierrors.NewMethodNotSupported(reports.GroupResource(), info.Verb))
	case info.Name == "":
		forward.WriteError(w, r, apierrors.NewBadRequest("the path of a MetricsReport must end in the name of the cluster"))
	default:
		h.report(w, r, info.Name)
	}
}

var reports = metricsv1alpha1.GroupVersion.WithResource("metricsreports")

// report sends a report to all replicas, and answers with what they want together.
func (h *Reports) report(w http.ResponseWriter, r *http.Request, cluster string) {
	body, err := forward.ReadBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	replicas := h.Views.replicas()
	answers := make([]reportAnswer, len(replicas))
	ctx, cancel := context.WithTimeout(r.Context(), reportTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for i, replica := range replicas {
		group.Go(func() error {
			answers[i] = replica.report(ctx, cluster, body)
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	answer, err := combine(cluster, answers)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer) // the agent may have gone
}

func (v *Views) replicas() []*replica {
	var all []*replica
	for _, s := range v.shares {
		all = append(all, s.replicas...)
	}
	return all
}

// reportAnswer is what a replica says to a report; the zero value is that of one that does not answer.
type reportAnswer struct {
	report *metricsv1alpha1.MetricsReport
	// taken is set if the replica shows the cluster.
	taken bool
	// refused says what is wrong with the report.
	refused error
}

// report sends a report to a replica.
func (r *replica) report(ctx context.Context, cluster string, body []byte) reportAnswer {
	out := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: views.ReportsPath + cluster}, Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	answer, err := r.send(out)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("a cluster-gateway does not take a report", "replica", r.upstream.Name(), "err", err)
	}
	return answer
}

func (r *replica) send(report *http.Request) (reportAnswer, error) {
	response, err := r.upstream.RoundTrip(report)
	if err != nil {
		return reportAnswer{}, err
	}
	defer response.Body.Close()
	content, err := forward.ReadAll(report.Context(), response.Body, response.ContentLength, maxReportAnswer, answerCopies)
	if err != nil {
		return reportAnswer{}, err
	}
	switch response.StatusCode {
	case http.StatusCreated:
		answer := reportAnswer{report: &metricsv1alpha1.MetricsReport{}, taken: response.Header.Get(views.ElsewhereHeader) == ""}
		if err := json.Unmarshal(content, answer.report); err != nil {
			return reportAnswer{}, err
		}
		return answer, nil
	case http.StatusBadRequest:
		status := metav1.Status{}
		if err := json.Unmarshal(content, &status); err != nil {
			return reportAnswer{}, err
		}
		return reportAnswer{refused: &apierrors.StatusError{ErrStatus: status}}, nil
	}
	return reportAnswer{}, fmt.Errorf("it answered %s", response.Status)
}

// combine returns one answer: everything is sent again if a replica needs it.
func combine(cluster string, answers []reportAnswer) (*metricsv1alpha1.MetricsReport, error) {
	combined := &metricsv1alpha1.MetricsReport{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	combined.SetGroupVersionKind(metricsv1alpha1.GroupVersion.WithKind("MetricsReport"))
	taken := false
	for _, answer := range answers {
		switch {
		case answer.refused != nil:
			return nil, answer.refused
		case answer.report == nil:
			continue
		}
		taken = taken || answer.taken
		combined.Spec = answer.report.Spec
		combined.Status.Resend = combined.Status.Resend || answer.report.Status.Resend
		if combined.Status.Wanted == nil {
			combined.Status.Wanted = answer.report.Status.Wanted
		}
	}
	if !taken {
		unavailable := apierrors.NewServiceUnavailable("no cluster-gateway takes the metrics of cluster " + cluster)
		unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return nil, unavailable
	}
	return combined, nil
}
