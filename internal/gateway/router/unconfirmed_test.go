package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/fleet"
	gatewaydurability "github.com/cellplane/cellplane/internal/gateway/durability"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/slots"
)

// backupPair is a cell and its backup cell, which confirms writes while it works.
type backupPair struct {
	working atomic.Bool
	stored  atomic.Int64 // the revision of the cell
	writes  atomic.Int64 // of users
	// unused has the backup cell say that no object asks for durability, though the objects of the cell do.
	unused bool
}

// source is the cell.
func (b *backupPair) source(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/leases") {
		b.leases(w, r, "")
		return
	}
	revision := b.stored.Load()
	if r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" {
		revision = b.stored.Add(1)
		if strings.Contains(r.URL.Path, "/namespaces/default/") { // the mark is elsewhere
			b.writes.Add(1)
		}
	}
	annotations := "{}"
	if b.unused {
		annotations = `{"` + names.DurabilityAnnotation + `":"` + names.DurabilityReplicated + `"}`
	}
	fmt.Fprintf(w, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default","resourceVersion":"%d","annotations":%s}}`, revision, annotations)
}

// target is the backup cell.
func (b *backupPair) target(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	b.leases(w, r, "cell-a")
}

// leases serves the records of what was received from a cell, and renews them.
func (b *backupPair) leases(w http.ResponseWriter, r *http.Request, from string) {
	if r.URL.Query().Get("watch") == "" {
		_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
		return
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if from != "" && b.working.Load() {
			record, err := durability.Received{Source: from, Revision: b.stored.Load(), Epoch: 1, InUse: !b.unused, Time: time.Now()}.Encode()
			if err != nil {
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": json.RawMessage(record)})
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

// TestABackupCellThatStops writes a durable object. While the backup cell works, writes are acknowledged. When it stops in the middle of a write,
// the client gets 504, is not told to try again, and the write was sent once. Later writes are refused.
func TestABackupCellThatStops(t *testing.T) {
	pair := &backupPair{}
	patch := pair.start(t, names.DurabilityReplicated, "")
	if !eventually(t, func() bool { return patch(time.Minute).Code == http.StatusOK }) {
		t.Fatal("a write was not acknowledged")
	}
	before := pair.writes.Load()
	pair.working.Store(false)
	answer := patch(5 * time.Second)
	if answer.Code != http.StatusGatewayTimeout || !strings.Contains(answer.Body.String(), "is stored in cell cell-a, and it is not known whether it is replicated") {
		t.Errorf("got %d: %s", answer.Code, answer.Body)
	}
	if answer.Header().Get("Retry-After") != "" {
		t.Error("the client is told to try again")
	}
	if sent := pair.writes.Load() - before; sent != 1 {
		t.Errorf("the write was sent %d times", sent)
	}
	if !eventually(t, func() bool { return patch(time.Minute).Code == http.StatusServiceUnavailable }) {
		t.Error("writes are not refused while the backup cell does not work")
	}
	pair.working.Store(true)
	if !eventually(t, func() bool { return patch(time.Minute).Code == http.StatusOK }) {
		t.Error("writes are refused although the backup cell works again")
	}
}

// TestAScaleOfAnUnseenObject scales an object that asks for durability, while the last record says that no object does: the object may have got the
// annotation a moment ago. Such a scale is not acknowledged without the backup cell either.
func TestAScaleOfAnUnseenObject(t *testing.T) {
	pair := &backupPair{unused: true}
	scale := pair.start(t, "", "scale")
	if !eventually(t, func() bool { return scale(time.Minute).Code == http.StatusOK }) {
		t.Fatal("a scale was not acknowledged")
	}
	pair.working.Store(false)
	if answer := scale(5 * time.Second); answer.Code < http.StatusInternalServerError {
		t.Errorf("it was acknowledged: %d %s", answer.Code, answer.Body)
	}
}

// start runs a router in front of the pair, in a namespace that may ask for durability. It returns a function that patches an object, or something
// beneath it.
func (b *backupPair) start(t *testing.T, asked, subresource string) func(within time.Duration) *httptest.ResponseRecorder {
	t.Helper()
	b.working.Store(true)
	rt := routerWithCells(t, map[string]http.Handler{"cell-a": http.HandlerFunc(b.source), "cell-b": http.HandlerFunc(b.target)})
	backups := &gatewaydurability.Backups{Topology: rt.Topology, Namespace: func(string) (string, bool) { return asked, true }}
	rt.Durability = backups
	go backups.Run(t.Context())
	view := rt.Topology.View()
	name := ""
	for i := 0; name == ""; i++ {
		if n := fmt.Sprintf("m-%d", i); view.Name(view.Route(slots.Of("default", n)).New) == "cell-a" {
			name = n
		}
	}
	return func(within time.Duration) *httptest.ResponseRecorder {
		info := &request.RequestInfo{IsResourceRequest: true, Verb: "patch", APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Name: name, Subresource: subresource}
		info.Path = path.Join("/api/v1/namespaces/default/configmaps", name, subresource)
		ctx, cancel := context.WithTimeout(request.WithUser(request.WithRequestInfo(t.Context(), info), &user.DefaultInfo{Name: "alice"}), within)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPatch, info.Path, strings.NewReader(`{"data":{"a":"b"}}`))
		r.Header.Set("Content-Type", "application/merge-patch+json")
		answer := httptest.NewRecorder()
		rt.ServeHTTP(answer, r)
		return answer
	}
}

// routerWithCells returns a router with some cells.
func routerWithCells(t *testing.T, handlers map[string]http.Handler) *Router {
	t.Helper()
	var cells []topology.Cell
	for _, name := range []string{"cell-a", "cell-b"} {
		cells = append(cells, topology.Cell{Name: name, Weight: 1, Endpoint: served(t, handlers[name])})
	}
	tracker := topology.NewTracker(topology.Static{Epoch: 1, Cells: cells}, &fleet.Cells{}, "")
	go func() { _ = tracker.Run(t.Context()) }() // a static source does not fail
	<-tracker.Known()
	return New(Router{Topology: tracker})
}
