package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/durability"
)

// unfencedCell has an object with the annotation, "durable", and one without. It does not refuse durable writes until it is fenced.
type unfencedCell struct {
	fenced atomic.Bool
	writes atomic.Int64
}

func (c *unfencedCell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimSuffix(r.URL.Path, "/status")
	name := path[strings.LastIndex(path, "/")+1:]
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: "7"}}
	if name == "durable" || strings.Contains(string(body), names.DurabilityAnnotation) {
		object.Annotations = map[string]string{names.DurabilityAnnotation: names.DurabilityReplicated}
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodGet:
	case c.fenced.Load() && object.Annotations != nil && r.Header.Get("X-Remote-Extra-Cellplane.io%2fdurability") == "":
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
			Message: "x is forbidden: ValidatingAdmissionPolicy 'cellplane-gateway' with binding 'cellplane-gateway' denied request: " + fence.Durable + names.DurabilityReplicated,
		})
		return
	case r.URL.Query().Get("dryRun") != "":
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodDelete:
		c.writes.Add(1)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		return
	default:
		c.writes.Add(1)
	}
	_ = json.NewEncoder(w).Encode(object)
}

// TestDurableWritesToAnUnfencedCell writes to a cell that does not refuse durable writes yet. There is no backup cell. So every write of an object
// with the annotation is refused before it is sent, however the annotation is known, and others are not affected.
func TestDurableWritesToAnUnfencedCell(t *testing.T) {
	cell := &unfencedCell{}
	rt := routerWithWholeCell(t, cell)
	rt.Durability = &durability.Backups{Topology: rt.Topology, Namespace: func(string) (string, bool) { return "", true }}
	send := func(method, name, subresource, contentType, body string) int {
		t.Helper()
		verb := map[string]string{http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodPost: "create"}[method]
		info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Name: name, Subresource: subresource}
		info.Path = strings.TrimRight("/api/v1/namespaces/default/configmaps/"+name+"/"+subresource, "/")
		ctx, cancel := context.WithCancel(request.WithUser(request.WithRequestInfo(t.Context(), info), &user.DefaultInfo{Name: "alice"}))
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, method, info.Path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		answer := httptest.NewRecorder()
		rt.ServeHTTP(answer, r)
		return answer.Code
	}
	const annotated = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","annotations":{"` + names.DurabilityAnnotation + `":"replicated"}}}`
	const plain = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"}}`
	durable := []struct{ what, method, name, subresource, contentType, body string }{
		{"a creation", http.MethodPost, "", "", "application/json", fmt.Sprintf(annotated, "new")},
		{"an update that adds the annotation", http.MethodPut, "plain", "", "application/json", fmt.Sprintf(annotated, "plain")},
		{"an update that removes it", http.MethodPut, "durable", "", "application/json", fmt.Sprintf(plain, "durable")},
		{"a merge patch", http.MethodPatch, "durable", "", "application/merge-patch+json", `{"data":{"a":"b"}}`},
		{"a JSON patch", http.MethodPatch, "durable", "", "application/json-patch+json", `[{"op":"add","path":"/data","value":{}}]`},
		{"a strategic merge patch", http.MethodPatch, "durable", "", "application/strategic-merge-patch+json", `{"data":{"a":"b"}}`},
		{"an apply", http.MethodPatch, "durable", "", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"durable"}}`},
		{"a status", http.MethodPatch, "durable", "status", "application/merge-patch+json", `{"status":{}}`},
		{"a deletion", http.MethodDelete, "durable", "", "application/json", ""},
	}
	for _, fenced := range []bool{false, true} {
		cell.fenced.Store(fenced)
		for _, one := range durable {
			if one.method == http.MethodDelete && fenced {
				continue // this cell does not see the object in a deletion, as API servers do
			}
			before := cell.writes.Load()
			if code := send(one.method, one.name, one.subresource, one.contentType, one.body); code != http.StatusServiceUnavailable {
				t.Errorf("fenced %v: %s got %d, want 503", fenced, one.what, code)
			}
			if cell.writes.Load() != before {
				t.Errorf("fenced %v: %s was stored", fenced, one.what)
			}
		}
		if code := send(http.MethodPost, "", "", "application/json", fmt.Sprintf(plain, "other")); code >= http.StatusMultipleChoices {
			t.Errorf("fenced %v: an object that asks for nothing got %d", fenced, code)
		}
		if code := send(http.MethodPatch, "plain", "", "application/merge-patch+json", `{"data":{"a":"b"}}`); code >= http.StatusMultipleChoices {
			t.Errorf("fenced %v: a patch of an object that asks for nothing got %d", fenced, code)
		}
	}
}
