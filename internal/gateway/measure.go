package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Values of the label "kind" of requests in progress.
const (
	kindReading     = "reading"
	kindMutating    = "mutating"
	kindLongRunning = "long-running"
)

// Values of the label "verb" beside those of Kubernetes.
const (
	verbNonResource = "nonresource"
	verbOther       = "other"
)

var (
	readingVerbs = []string{"get", "list", "watch"}
	knownVerbs   = append([]string{"create", "update", "patch", "delete", "deletecollection", "proxy"}, readingVerbs...)
)

// withMetrics counts requests and measures them. Those of k8s.io/apiserver are only for its own handlers. The labels have few values, whatever clients send.
func withMetrics(next http.Handler, longRunning apirequest.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		verb, kind := verbOf(info), kindMutating
		switch {
		case longRunning(r, info):
			kind = kindLongRunning
		case slices.Contains(readingVerbs, info.Verb):
			kind = kindReading
		}
		began, inProgress, answer := time.Now(), requestsInProgress.WithLabelValues(kind), &answered{ResponseWriter: w}
		inProgress.Inc()
		returned := false
		defer func() {
			inProgress.Dec()
			requests.WithLabelValues(verb, answer.codeOf(r, returned)).Inc()
			if kind != kindLongRunning {
				requestDuration.WithLabelValues(verb).Observe(time.Since(began).Seconds())
			}
		}()
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), r)
		returned = true
	})
}

func verbOf(info *apirequest.RequestInfo) string {
	switch {
	case !info.IsResourceRequest:
		return verbNonResource
	case slices.Contains(knownVerbs, info.Verb):
		return info.Verb
	}
	return verbOther
}

// answered remembers the status of an answer.
type answered struct {
	http.ResponseWriter
	code int
}

var _ responsewriter.UserProvidedDecorator = &answered{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answered) WriteHeader(code int) {
	if a.code < http.StatusOK { // informational ones may come before
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

// codeOf returns the status for the metric. Without one, net/http answers 200 if the handler has returned, and nothing if it has panicked; a connection that
// was taken over is switched to another protocol.
func (a *answered) codeOf(r *http.Request, returned bool) string {
	switch {
	case a.code != 0 && http.StatusText(a.code) != "":
		return strconv.Itoa(a.code)
	case a.code != 0:
		return verbOther
	case r.Header.Get("Upgrade") != "":
		return strconv.Itoa(http.StatusSwitchingProtocols)
	case returned:
		return strconv.Itoa(http.StatusOK)
	}
	return "aborted"
}
