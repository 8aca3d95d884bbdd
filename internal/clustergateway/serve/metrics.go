package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
)

// Members are the clusters that serve metrics of their pods and nodes.
type Members interface {
	Names() []string
	Client(cluster string) (ingest.Target, bool)
}

// Metrics serves metrics.k8s.io by merging the responses of all members. Nothing is cached.
type Metrics struct{ members Members }

// NewMetrics returns Metrics of members.
func NewMetrics(members Members) *Metrics { return &Metrics{members} }

const (
	// maxMetrics bounds the response of a member, and atOnce the number of concurrent requests.
	maxMetrics = 256 << 20
	atOnce     = 32
)

// metricsList is a list of PodMetrics or NodeMetrics. Only their metadata is read.
type metricsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []map[string]any `json:"items"`
}

// ServeHTTP requests metrics from the members and merges them.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		WriteError(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	if r.Method != http.MethodGet || info.Verb == "watch" {
		WriteError(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb))
		return
	}
	answers, lost := m.askAll(r)
	warnings := warner{w.Header()}
	if len(lost) > 0 {
		warnings.add("there are no metrics of " + some(lost))
	}
	if info.Verb == "get" && info.Name != "" {
		m.writeOne(w, r, info.Resource, info.Name, answers)
		return
	}
	merged := metricsList{Items: []map[string]any{}}
	for _, answer := range answers {
		var list metricsList
		if err := json.Unmarshal(answer.body, &list); err != nil {
			warnings.add(fmt.Sprintf("the metrics of cluster %s cannot be read", answer.cluster))
			continue
		}
		merged.TypeMeta = list.TypeMeta
		for _, item := range list.Items {
			mark(item, answer.cluster)
			merged.Items = append(merged.Items, item)
		}
	}
	if merged.Kind == "" {
		WriteError(w, r, apierrors.NewServiceUnavailable("no member serves metrics of "+info.Resource))
		return
	}
	slices.SortStableFunc(merged.Items, func(a, b map[string]any) int { return strings.Compare(keyOf(a), keyOf(b)) })
	// Clients expect names to be unique.
	merged.Items = slices.CompactFunc(merged.Items, func(a, b map[string]any) bool { return keyOf(a) == keyOf(b) })
	writeJSON(w, merged)
}

func (m *Metrics) writeOne(w http.ResponseWriter, r *http.Request, resource, name string, answers []answer) {
	if len(answers) == 0 {
		WriteError(w, r, apierrors.NewNotFound(schema.GroupResource{Group: "metrics.k8s.io", Resource: resource}, name))
		return
	}
	var object map[string]any
	if err := json.Unmarshal(answers[0].body, &object); err != nil {
		WriteError(w, r, apierrors.NewInternalError(err))
		return
	}
	mark(object, answers[0].cluster)
	writeJSON(w, object)
}

func writeJSON(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // the client may have gone
}

type answer struct {
	cluster string
	body    []byte
}

// askAll requests metrics from the members, sorted by name. Members without metrics are left out; lost are those whose request failed.
func (m *Metrics) askAll(r *http.Request) (answers []answer, lost []string) {
	clusters := m.members.Names()
	slices.Sort(clusters)
	bodies := make([][]byte, len(clusters))
	failed := make([]bool, len(clusters))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, cluster := range clusters {
		group.Go(func() error {
			bodies[i], failed[i] = m.ask(r.Context(), r, cluster)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	for i, cluster := range clusters {
		switch {
		case bodies[i] != nil:
			answers = append(answers, answer{cluster, bodies[i]})
		case failed[i]:
			lost = append(lost, cluster)
		}
	}
	return answers, lost
}

func (m *Metrics) ask(ctx context.Context, r *http.Request, cluster string) (body []byte, failed bool) {
	target, ok := m.members.Client(cluster)
	if !ok {
		return nil, true
	}
	response, err := target.Get(ctx, r.URL.Path, r.URL.Query(), http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, true
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, response.StatusCode != http.StatusNotFound
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxMetrics+1))
	if err != nil || len(body) > maxMetrics {
		return nil, true
	}
	return body, false
}

// mark annotates an object with its cluster.
func mark(object map[string]any, cluster string) {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[names.ClusterAnnotation] = cluster
	annotations[names.QueryFromClusterAnnotation] = cluster
}

func keyOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)
	return namespace + "/" + name
}
