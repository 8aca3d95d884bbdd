package durability

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/google/uuid"

	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

const marksPath = "/api/v1/namespaces/" + durability.Namespace + "/configmaps"

// marks lets concurrent writes share a change of the mark.
type marks struct {
	mu    sync.Mutex
	cells map[string]*marking
}

// marking is the state of the mark in one cell.
type marking struct {
	under *change // the change under way
	next  *change // the one after it, for those who came since
}

// change is a change of the mark.
type change struct {
	done     chan struct{}
	revision int64
	err      error
}

// Mark changes the mark in a cell, and returns a revision of its store after that of all writes that were answered
// before.
func (b *Backups) Mark(ctx context.Context, cell string) (int64, error) {
	joined := b.marks.join(cell, func() (int64, error) {
		view := b.Topology.View() // that of this moment: others may have joined since
		if i, member := view.Index(cell); member && int(i) < len(view.Upstreams) && view.Upstreams[i] != nil {
			return mark(view.Upstreams[i], forward.ToCell(view.Latest()))
		}
		return 0, forward.Unreachable(cell, nil)
	})
	select {
	case <-joined.done:
		return joined.revision, joined.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// join returns a change that begins after the call.
func (m *marks) join(cell string, do func() (int64, error)) *change {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cells == nil {
		m.cells = map[string]*marking{}
	}
	state := m.cells[cell]
	if state == nil {
		state = &marking{}
		m.cells[cell] = state
	}
	switch {
	case state.under == nil:
		state.under = &change{done: make(chan struct{})}
		go m.run(state, do)
		return state.under
	case state.next == nil:
		state.next = &change{done: make(chan struct{})}
	}
	return state.next
}

// run makes the changes of a cell, one after the other.
func (m *marks) run(state *marking, do func() (int64, error)) {
	for {
		m.mu.Lock()
		under := state.under
		m.mu.Unlock()
		under.revision, under.err = do()
		close(under.done)
		m.mu.Lock()
		state.under, state.next = state.next, nil
		more := state.under != nil
		m.mu.Unlock()
		if !more {
			return
		}
	}
}

// mark changes the mark.
func mark(upstream *fleet.Upstream, scope forward.Scope) (int64, error) {
	ctx, cancel := context.WithCancel(context.Background()) // several writes may wait for it
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": durability.MarkName, "namespace": durability.Namespace},
		"data":     map[string]any{"change": uuid.NewString()},
	})
	if err != nil {
		return 0, err
	}
	response, err := send(ctx, cancel, upstream, scope, http.MethodPut, marksPath+"/"+durability.MarkName, nil, body)
	if isCode(err, http.StatusNotFound) {
		response, err = send(ctx, cancel, upstream, scope, http.MethodPost, marksPath, nil, body)
	}
	if isCode(err, http.StatusConflict) { // another gateway has just created it
		response, err = send(ctx, cancel, upstream, scope, http.MethodPut, marksPath+"/"+durability.MarkName, nil, body)
	}
	if err != nil {
		return 0, fmt.Errorf("changing the mark in cell %s: %w", upstream.Name(), err)
	}
	defer response.Body.Close()
	var marked struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&marked); err != nil {
		return 0, fmt.Errorf("changing the mark in cell %s: %w", upstream.Name(), err)
	}
	return strconv.ParseInt(marked.Metadata.ResourceVersion, 10, 64)
}
