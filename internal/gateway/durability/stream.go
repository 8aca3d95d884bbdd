package durability

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

const (
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/" + durability.Namespace + "/leases"
	// answerWithin is how long a cell may take to begin an answer.
	answerWithin = 10 * time.Second
	maxAnswer    = 4 << 20
)

// list is the part of a LeaseList that matters.
type list struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// stream reads the records of a backup cell, and then their changes until the stream ends.
func (b *Backups) stream(ctx context.Context, cell string, upstream *fleet.Upstream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"labelSelector": {durability.ReceivedLabel}}
	response, err := send(ctx, cancel, upstream, forward.ToCell(0), http.MethodGet, leasesPath, query, nil)
	if err != nil {
		return err
	}
	var all list
	err = json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&all)
	response.Body.Close()
	if err != nil {
		return fmt.Errorf("reading the Leases of cell %s: %w", cell, err)
	}
	var found []durability.Received
	for _, item := range all.Items {
		if one, err := durability.Decode(item); err == nil {
			found = append(found, one)
		}
	}
	b.records.set(cell, found, time.Now())

	query.Set("watch", "true")
	query.Set("resourceVersion", all.Metadata.ResourceVersion)
	if response, err = send(ctx, cancel, upstream, forward.ToCell(0), http.MethodGet, leasesPath, query, nil); err != nil {
		return err
	}
	defer response.Body.Close()
	events := json.NewDecoder(bufio.NewReader(response.Body))
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&event); err != nil {
			return err
		}
		if err := b.take(cell, event.Type, event.Object); err != nil {
			return err
		}
	}
}

// take takes a change of a record.
func (b *Backups) take(cell, kind string, object []byte) error {
	if kind == "ERROR" {
		return fmt.Errorf("the watch of cell %s failed: %.200s", cell, object)
	}
	one, err := durability.Decode(object)
	switch {
	case err != nil:
		return nil //nolint:nilerr // it was not written by a backup
	case kind == "DELETED":
		b.records.remove(cell, one.Source)
	default:
		b.records.update(cell, one, time.Now())
	}
	return nil
}

// send sends a request to a cell as the gateway. cancel ends it if no answer begins in time.
func send(ctx context.Context, cancel context.CancelFunc, upstream *fleet.Upstream, scope forward.Scope, method, path string, query url.Values, body []byte) (*http.Response, error) {
	timer := time.AfterFunc(answerWithin, cancel)
	response, err := upstream.RoundTrip(forward.OwnRequest(ctx, scope, method, path, query, body))
	if err != nil {
		return nil, err
	}
	if !timer.Stop() {
		response.Body.Close()
		return nil, context.DeadlineExceeded
	}
	if response.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		response.Body.Close()
		return nil, &refusal{code: response.StatusCode, text: string(text)}
	}
	return response, nil
}

// refusal is an answer with an error status.
type refusal struct {
	code int
	text string
}

// Error implements error.
func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.text) }

// isCode reports whether an error is an answer with a status code.
func isCode(err error, code int) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == code
}
