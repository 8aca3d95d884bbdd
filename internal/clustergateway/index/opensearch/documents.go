package opensearch

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/cellplane/cellplane/internal/clustergateway/index"
)

const (
	// scrollPage is how many documents are read at a time, and scrollTime how long OpenSearch keeps the rest for the next request.
	scrollPage = 5000
	scrollTime = "2m"
	// pageTime is the timeout of a page.
	pageTime = time.Minute
	// endTime is that of the request that ends a scroll.
	endTime = 5 * time.Second
)

type page struct {
	Scroll string `json:"_scroll_id"`
	Hits   struct {
		Hits []struct {
			ID      string `json:"_id"`
			Version int64  `json:"_version"`
		} `json:"hits"`
	} `json:"hits"`
}

// Documents implements index.Backend. It sees all that was written before.
func (c *Client) Documents(ctx context.Context, name string, of index.Source, visit func(id string, version int64)) error {
	at := "/" + url.PathEscape(name)
	if err := c.read(ctx, http.MethodPost, at+"/_refresh", nil, nil); err != nil {
		return err
	}
	query := map[string]any{
		"size": scrollPage, "version": true, "_source": false, "sort": []string{"_doc"},
		"query": map[string]any{"bool": map[string]any{"filter": []any{
			map[string]any{"term": map[string]any{"cellplane.cluster": of.Cluster}},
			map[string]any{"term": map[string]any{"cellplane.apiVersion": of.APIVersion}},
		}}},
	}
	var found page
	if err := c.read(ctx, http.MethodPost, at+"/_search?scroll="+scrollTime, query, &found); err != nil {
		return err
	}
	scroll := found.Scroll
	defer func() {
		if scroll != "" {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
			defer cancel()
			_ = c.read(ending, http.MethodDelete, "/_search/scroll", map[string]any{"scroll_id": []string{scroll}}, nil) // else it expires
		}
	}()
	for len(found.Hits.Hits) > 0 {
		for _, hit := range found.Hits.Hits {
			visit(hit.ID, hit.Version)
		}
		found = page{}
		if err := c.read(ctx, http.MethodPost, "/_search/scroll", map[string]any{"scroll": scrollTime, "scroll_id": scroll}, &found); err != nil {
			return err
		}
		if found.Scroll != "" {
			scroll = found.Scroll
		}
	}
	return nil
}

func (c *Client) read(ctx context.Context, method, path string, query any, result any) error {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	var body []byte
	if query != nil {
		var err error
		if body, err = json.Marshal(query); err != nil {
			return err
		}
	}
	return c.do(ctx, method, path, jsonType, body, result)
}
