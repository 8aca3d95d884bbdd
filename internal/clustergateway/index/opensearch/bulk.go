package opensearch

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/cellplane/cellplane/internal/clustergateway/index"
)

// action is the line of a bulk before a document.
type action struct {
	Index  *address `json:"index,omitempty"`
	Delete *address `json:"delete,omitempty"`
}

type address struct {
	ID          string `json:"_id"`
	Version     int64  `json:"version,omitempty"`
	VersionType string `json:"version_type,omitempty"`
}

// item is the result of an action.
type item struct {
	ID     string   `json:"_id"`
	Status int      `json:"status"`
	Error  *failure `json:"error"`
}

// Bulk implements index.Backend.
func (c *Client) Bulk(ctx context.Context, name string, operations []*index.Operation) ([]index.Result, error) {
	body, err := encodeBulk(operations)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Items []struct{ Index, Delete *item } `json:"items"`
	}
	// filter_path leaves out what is not needed of the answer.
	path := "/" + url.PathEscape(name) + "/_bulk?filter_path=items.*._id,items.*.status,items.*.error"
	if err := c.do(ctx, http.MethodPost, path, "application/x-ndjson", body, &answer); err != nil {
		return nil, err
	}
	results := make([]index.Result, 0, len(answer.Items))
	for i, found := range answer.Items {
		result := index.Result{Outcome: index.Failed, Message: "OpenSearch has not answered for this document"}
		if i < len(operations) {
			of, deleted := found.Index, operations[i].Document == nil
			if deleted {
				of = found.Delete
			}
			if of != nil && of.ID == operations[i].ID {
				result = of.result(deleted)
			}
		}
		results = append(results, result)
	}
	return results, nil
}

// encodeBulk returns the lines of a bulk.
func encodeBulk(operations []*index.Operation) ([]byte, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for _, o := range operations {
		to := &address{ID: o.ID}
		if o.Version > 0 {
			to.Version, to.VersionType = o.Version, "external_gte"
		}
		line := action{Index: to}
		if o.Document == nil {
			line = action{Delete: to}
		}
		if err := lines.Encode(line); err != nil {
			return nil, err
		}
		if o.Document != nil {
			body.Write(o.Document)
			body.WriteByte('\n')
		}
	}
	return body.Bytes(), nil
}

func (i *item) result(deleted bool) index.Result {
	message := http.StatusText(i.Status)
	if i.Error != nil {
		message = i.Error.String()
	}
	switch {
	case i.Status/100 == 2, deleted && i.Status == http.StatusNotFound && (i.Error == nil || i.Error.Type == "index_not_found_exception"):
		return index.Result{}
	case i.Status == http.StatusConflict:
		return index.Result{Outcome: index.Outdated}
	case i.Status == http.StatusNotFound:
		return index.Result{Outcome: index.Missing, Message: message}
	// An administrator removes a block or grants rights.
	case i.Status == http.StatusTooManyRequests, i.Status/100 == 5, i.Status == http.StatusForbidden, i.Status == http.StatusUnauthorized:
		return index.Result{Outcome: index.Failed, Message: message}
	default:
		return index.Result{Outcome: index.Refused, Message: message}
	}
}
