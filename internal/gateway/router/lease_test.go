package router

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/writerlease"
	"github.com/cellplane/cellplane/internal/slots"
)

// switchedLease is a lease that a test gives and takes.
type switchedLease struct{ held atomic.Bool }

func (l *switchedLease) Held(*slots.Map) bool { return l.held.Load() }

func (l *switchedLease) Await(context.Context, *slots.Map) error {
	if l.held.Load() {
		return nil
	}
	return writerlease.ErrUnconfirmed
}

// TestWriterLease checks that every write needs the lease when it is sent and when its success is answered, and that reads and
// refusals carry a warning without it.
func TestWriterLease(t *testing.T) {
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"x","resourceVersion":"7"}}`
	for _, test := range []struct {
		name          string
		verb, method  string
		query, header string
		// before and after say whether the gateway holds the lease before the cell gets the request, and after.
		before, after bool
		answer        int // of the cell
		want          int
		sent, retry   bool
		warned        bool
	}{
		{name: "held", verb: "update", method: http.MethodPut, before: true, after: true, answer: 200, want: 200, sent: true},
		{name: "lost before", verb: "update", method: http.MethodPut, want: 503, retry: true},
		{name: "lost before a patch", verb: "patch", method: http.MethodPatch, want: 503, retry: true},
		{name: "lost before a deletion", verb: "delete", method: http.MethodDelete, want: 503, retry: true},
		{name: "lost while the cell writes", verb: "update", method: http.MethodPut, before: true, answer: 200, want: 504, sent: true},
		{name: "lost while the cell creates", verb: "update", method: http.MethodPut, before: true, answer: 201, want: 504, sent: true},
		{name: "a refusal needs no lease, but may be outdated", verb: "update", method: http.MethodPut, before: true, answer: 422, want: 422, sent: true, warned: true},
		{name: "a conflict", verb: "update", method: http.MethodPut, before: true, answer: 409, want: 409, sent: true, warned: true},
		{name: "a conflict with the lease", verb: "update", method: http.MethodPut, before: true, after: true, answer: 409, want: 409, sent: true},
		{name: "nothing to patch", verb: "patch", method: http.MethodPatch, before: true, answer: 404, want: 404, sent: true, warned: true},
		{name: "nothing to delete", verb: "delete", method: http.MethodDelete, before: true, answer: 404, want: 404, sent: true, warned: true},
		{name: "nothing to delete with the lease", verb: "delete", method: http.MethodDelete, before: true, after: true, answer: 404, want: 404, sent: true},
		{name: "an object that exists", verb: "create", method: http.MethodPost, before: true, answer: 409, want: 409, sent: true, warned: true},
		{name: "an error of the cell", verb: "update", method: http.MethodPut, before: true, answer: 500, want: 500, sent: true},
		{name: "a dry run", verb: "update", method: http.MethodPut, query: "dryRun=All", answer: 200, want: 200, sent: true, warned: true},
		{name: "a dry run with the lease", verb: "update", method: http.MethodPut, query: "dryRun=All", before: true, after: true, answer: 200, want: 200, sent: true},
		{name: "half a dry run", verb: "update", method: http.MethodPut, query: "dryRun=All&dryRun=", want: 503, retry: true},
		{name: "a deletion whose body overrides the query", verb: "delete", method: http.MethodDelete, query: "dryRun=All", want: 503, retry: true},
		{name: "a write with an upgrade", verb: "update", method: http.MethodPut, header: "Upgrade", want: 503, retry: true},
		{name: "a read", verb: "get", method: http.MethodGet, answer: 200, want: 200, sent: true, warned: true},
		{name: "lost while the cell reads", verb: "get", method: http.MethodGet, before: true, answer: 200, want: 200, sent: true, warned: true},
		{name: "held again when the cell has read", verb: "get", method: http.MethodGet, after: true, answer: 200, want: 200, sent: true},
		{name: "nothing to read", verb: "get", method: http.MethodGet, answer: 404, want: 404, sent: true, warned: true},
		{name: "a read with the lease", verb: "get", method: http.MethodGet, before: true, after: true, answer: 200, want: 200, sent: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			lease := &switchedLease{}
			lease.held.Store(test.before)
			sent := false
			rt := routerWithCell(t, func(w http.ResponseWriter, _ *http.Request) {
				sent = true
				lease.held.Store(test.after)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.answer)
				if test.answer >= 300 {
					_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d}`, test.answer)
					return
				}
				_, _ = io.WriteString(w, object)
			})
			rt.Lease = lease
			info := &request.RequestInfo{IsResourceRequest: true, Verb: test.verb, APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Name: "x"}
			info.Path = "/api/v1/namespaces/default/configmaps/x"
			if test.verb == "create" {
				info.Name, info.Path = "", "/api/v1/namespaces/default/configmaps"
			}
			r := httptest.NewRequest(test.method, info.Path+"?"+test.query, strings.NewReader(object))
			r.Header.Set("Content-Type", "application/json")
			if test.verb == "patch" {
				r.Header.Set("Content-Type", "application/merge-patch+json")
			}
			if test.header != "" {
				r.Header.Set(test.header, "something")
			}
			w := httptest.NewRecorder()
			rt.ServeHTTP(w, r.WithContext(request.WithUser(request.WithRequestInfo(t.Context(), info), &user.DefaultInfo{Name: "someone"})))
			if w.Code != test.want || sent != test.sent {
				t.Errorf("answered %d, want %d; sent to the cell: %t: %s", w.Code, test.want, sent, w.Body)
			}
			if got := w.Header().Get("Retry-After") != ""; got != test.retry {
				t.Errorf("clients are told to retry: %t", got)
			}
			if got := strings.HasPrefix(w.Header().Get("Warning"), "299 "); got != test.warned {
				t.Errorf("warned: %t: %q", got, w.Header().Values("Warning"))
			}
		})
	}
}
