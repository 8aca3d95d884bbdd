package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestRequestsAreMeasured checks the labels of requests, of which clients cannot make many, and that watches count as in progress only.
func TestRequestsAreMeasured(t *testing.T) {
	resolver := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	longRunning := func(_ *http.Request, info *apirequest.RequestInfo) bool { return info.Verb == "watch" }
	for _, test := range []struct {
		method, path string
		answer       http.HandlerFunc
		verb, code   string
		kind         string
	}{
		{"GET", "/api/v1/pods", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, "list", "503", kindReading},
		{"GET", "/api/v1/namespaces/a/pods/b", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }, "get", "200", kindReading},
		{"GET", "/api/v1/pods?watch=true", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, "watch", "200", kindLongRunning},
		{"POST", "/api/v1/namespaces/a/pods", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
		}, "create", "201", kindMutating},
		{"DELETE", "/api/v1/namespaces/a/pods/b", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(799) }, "delete", "other", kindMutating},
		{"PUT", "/api/v1/namespaces/a/pods/b", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "update", "aborted", kindMutating},
		{"INVENTED", "/api/v1/namespaces/a/pods/b", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, "other", "405", kindMutating},
		{"INVENTED", "/readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "nonresource", "500", kindMutating},
	} {
		t.Run(fmt.Sprintf("%s %s", test.method, test.path), func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), test.method, test.path, nil)
			info, err := resolver.NewRequestInfo(request)
			if err != nil {
				t.Fatal(err)
			}
			request = request.WithContext(apirequest.WithRequestInfo(request.Context(), info))
			before, inProgress := testutil.ToFloat64(requests.WithLabelValues(test.verb, test.code)), testutil.ToFloat64(requestsInProgress.WithLabelValues(test.kind))
			measured := testutil.CollectAndCount(requestDuration)
			handler := withMetrics(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if now := testutil.ToFloat64(requestsInProgress.WithLabelValues(test.kind)); now != inProgress+1 {
					t.Errorf("%v requests are in progress, want %v", now, inProgress+1)
				}
				test.answer(w, r)
			}), longRunning)
			func() {
				defer func() { _ = recover() }()
				handler.ServeHTTP(httptest.NewRecorder(), request)
			}()
			if counted := testutil.ToFloat64(requests.WithLabelValues(test.verb, test.code)) - before; counted != 1 {
				t.Errorf("counted %v times as %s %s", counted, test.verb, test.code)
			}
			if now := testutil.ToFloat64(requestsInProgress.WithLabelValues(test.kind)); now != inProgress {
				t.Errorf("%v requests are in progress afterwards, want %v", now, inProgress)
			}
			if test.kind == kindLongRunning && testutil.CollectAndCount(requestDuration) != measured {
				t.Error("the duration of a watch was measured")
			}
		})
	}
}
