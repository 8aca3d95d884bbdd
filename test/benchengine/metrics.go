package main

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// requests counts requests by "VERB resource[/subresource][ code]"; the code is only there for failures.
type requests map[string]float64

// writeVerbs are the verbs of API servers' metrics that mean writes.
var writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

// notStored are resources whose writes are not caused by workloads: leases and reviews.
var notStored = []string{"leases", "subjectaccessreviews", "tokenreviews", "selfsubjectaccessreviews"}

// writesIn returns the writes that an API server has served, failed ones included.
func writesIn(metrics []byte) requests {
	counts := requests{}
	for labels, value := range samples(metrics, "apiserver_request_total") {
		verb, resource := label(labels, "verb"), label(labels, "resource")
		if !slices.Contains(writeVerbs, verb) || slices.Contains(notStored, resource) {
			continue
		}
		key := verb + " " + resource
		if subresource := label(labels, "subresource"); subresource != "" {
			key += "/" + subresource
		}
		if code := label(labels, "code"); !strings.HasPrefix(code, "2") {
			key += " " + code
		}
		counts[key] += value
	}
	return counts
}

// since returns what has been added to an earlier count.
func (r requests) since(earlier requests) requests {
	added := requests{}
	for key, value := range r {
		if value != earlier[key] {
			added[key] = value - earlier[key]
		}
	}
	return added
}

func (r requests) total() float64 {
	total := 0.0
	for _, value := range r {
		total += value
	}
	return total
}

// of returns the share of each of n objects.
func (r requests) of(n int) requests {
	share := requests{}
	for key, value := range r {
		share[key] = value / float64(n)
	}
	return share
}

// String lists the requests, most frequent first, leaving out what rounds to nothing.
func (r requests) String() string {
	keys := slices.SortedFunc(maps.Keys(r), func(a, b string) int {
		return cmp.Or(cmp.Compare(r[b], r[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, key := range keys {
		if r[key] >= 0.005 {
			parts = append(parts, fmt.Sprintf("%.2f %s", r[key], key))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// sum adds up all samples of a metric.
func sum(metrics []byte, name string) float64 {
	total := 0.0
	for _, value := range samples(metrics, name) {
		total += value
	}
	return total
}

// samples yields the labels and values of a metric in the text format of Prometheus.
func samples(metrics []byte, name string) iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for line := range bytes.Lines(metrics) {
			rest, found := bytes.CutPrefix(line, []byte(name))
			if !found || (rest[0] != '{' && rest[0] != ' ') {
				continue
			}
			text := strings.TrimSpace(string(rest))
			cut := strings.LastIndexByte(text, ' ') + 1
			value, err := strconv.ParseFloat(text[cut:], 64)
			if err != nil {
				continue
			}
			if !yield(text[:cut], value) {
				return
			}
		}
	}
}

func label(labels, name string) string {
	for _, before := range []string{"{", ","} {
		if _, rest, found := strings.Cut(labels, before+name+`="`); found {
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
	}
	return ""
}
