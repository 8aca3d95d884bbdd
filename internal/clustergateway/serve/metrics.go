package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
	"github.com/cellplane/cellplane/internal/limits"
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
	// maxMetrics bounds the response of a member, and atOnce the number of concurrent requests. Metrics of a pod take half a kilobyte.
	maxMetrics = 64 << 20
	atOnce     = 32
	// metricsCopies is how often a response is in memory: as received, and cut into items.
	metricsCopies = 3
)

// metricsList is a list of PodMetrics or NodeMetrics. Only their metadata is read.
type metricsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

// measured are the encoded metrics of a pod or node of a cluster.
type measured struct {
	key, cluster string
	encoded      json.RawMessage
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
	answers, lost, err := m.askAll(r)
	if err != nil {
		WriteError(w, r, err)
		return
	}
	warnings := warner{w.Header()}
	if len(lost) > 0 {
		warnings.add("there are no metrics of " + some(lost))
	}
	if info.Verb == "get" && info.Name != "" {
		m.writeOne(w, r, info.Resource, info.Name, answers)
		return
	}
	var kind metav1.TypeMeta
	var all []measured
	for i, answer := range answers {
		var list metricsList
		if err := json.Unmarshal(answer.body, &list); err != nil {
			warnings.add(fmt.Sprintf("the metrics of cluster %s cannot be read", answer.cluster))
			continue
		}
		answers[i].body = nil
		kind = list.TypeMeta
		for _, item := range list.Items {
			all = append(all, measured{keyOf(item), answer.cluster, item})
		}
	}
	if kind.Kind == "" {
		WriteError(w, r, apierrors.NewServiceUnavailable("no member serves metrics of "+info.Resource))
		return
	}
	slices.SortStableFunc(all, func(a, b measured) int { return strings.Compare(a.key, b.key) })
	// Clients expect names to be unique.
	all = slices.CompactFunc(all, func(a, b measured) bool { return a.key == b.key })
	if err := writeMetrics(w, kind, all); err != nil {
		failed(r, err)
	}
}

// writeMetrics writes a list item by item.
func writeMetrics(w http.ResponseWriter, kind metav1.TypeMeta, all []measured) error {
	head, err := json.Marshal(kind)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	buffered := bufio.NewWriterSize(w, 64<<10)
	// Errors are those of the first write that failed; Flush returns them.
	_, _ = buffered.Write(head[:len(head)-1])
	_, _ = buffered.WriteString(`,"metadata":{},"items":[`)
	separator := ""
	for _, item := range all {
		marked, err := mark(item.encoded, item.cluster)
		if err != nil {
			continue // it is not an object
		}
		_, _ = buffered.WriteString(separator)
		if _, err := buffered.Write(marked); err != nil {
			return err
		}
		separator = ","
	}
	_, _ = buffered.WriteString("]}\n")
	return buffered.Flush()
}

func (m *Metrics) writeOne(w http.ResponseWriter, r *http.Request, resource, name string, answers []answer) {
	if len(answers) == 0 {
		WriteError(w, r, apierrors.NewNotFound(schema.GroupResource{Group: "metrics.k8s.io", Resource: resource}, name))
		return
	}
	marked, err := mark(answers[0].body, answers[0].cluster)
	if err != nil {
		WriteError(w, r, apierrors.NewInternalError(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(marked, '\n')) // the client may have gone
}

type answer struct {
	cluster string
	body    []byte
}

// askAll requests metrics from the members, sorted by name. Members without metrics are left out; lost are those whose request failed. It
// fails if there is no memory for the answers.
func (m *Metrics) askAll(r *http.Request) (answers []answer, lost []string, err error) {
	clusters := m.members.Names()
	slices.Sort(clusters)
	bodies := make([][]byte, len(clusters))
	failed := make([]bool, len(clusters))
	group, ctx := errgroup.WithContext(r.Context())
	group.SetLimit(atOnce)
	for i, cluster := range clusters {
		group.Go(func() (err error) {
			bodies[i], failed[i], err = m.ask(ctx, r, cluster)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for i, cluster := range clusters {
		switch {
		case bodies[i] != nil:
			answers = append(answers, answer{cluster, bodies[i]})
		case failed[i]:
			lost = append(lost, cluster)
		}
	}
	return answers, lost, nil
}

// ask requests metrics from a member. The error is that of a request whose answers take too much memory.
func (m *Metrics) ask(ctx context.Context, r *http.Request, cluster string) (body []byte, failed bool, exhausted error) {
	target, ok := m.members.Client(cluster)
	if !ok {
		return nil, true, nil
	}
	response, err := target.Get(ctx, r.URL.Path, r.URL.Query(), http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, true, nil
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, response.StatusCode != http.StatusNotFound, nil
	}
	body, err = limits.ReadAll(response.Body, response.ContentLength, maxMetrics, func(bytes int64) error {
		exhausted = holder{ctx}.hold(metricsCopies * int(bytes))
		return exhausted
	})
	if err != nil {
		return nil, true, exhausted
	}
	return body, false, nil
}

// mark annotates an object with its cluster.
func mark(encoded []byte, cluster string) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &object); err != nil {
		return nil, err
	}
	metadata := map[string]any{}
	if given := object["metadata"]; len(given) > 0 {
		if err := json.Unmarshal(given, &metadata); err != nil {
			return nil, err
		}
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
	}
	annotations[names.ClusterAnnotation] = cluster
	annotations[names.QueryFromClusterAnnotation] = cluster
	metadata["annotations"] = annotations
	changed, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	object["metadata"] = changed
	return json.Marshal(object)
}

func keyOf(encoded []byte) string {
	var object struct {
		Metadata struct{ Namespace, Name string }
	}
	_ = json.Unmarshal(encoded, &object) // an item without a name is shown once
	return object.Metadata.Namespace + "/" + object.Metadata.Name
}
