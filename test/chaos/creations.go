package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// creations are objects that are created once and never change.
type creations struct {
	*clients
	mu           sync.Mutex
	acknowledged map[string]time.Duration // by key, since the begin of the history
}

// run creates one object after the other in a namespace, through one gateway.
func (c *creations) run(ctx context.Context, gateway int, namespace string) {
	for i := 0; ctx.Err() == nil; i++ {
		q := question{verb: create, key: fmt.Sprintf("%s/new-%d-%d", namespace, gateway, i), value: "new", gateway: c.gateways[gateway]}
		if a, _, _ := c.send(ctx, q, ""); a.outcome == done {
			c.mu.Lock()
			c.acknowledged[q.key] = time.Since(c.history.begun)
			c.mu.Unlock()
		}
		pause(ctx, 60*time.Millisecond)
	}
}

// gone returns the objects that were acknowledged and do not exist.
func (c *creations) gone(ctx context.Context) ([]string, error) {
	exists := map[string]bool{}
	for _, namespace := range c.namespaces {
		names, err := c.list(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			exists[namespace+"/"+name] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var gone []string
	for key, at := range c.acknowledged {
		if !exists[key] {
			gone = append(gone, fmt.Sprintf("%s (acknowledged at %v)", key, at.Round(time.Millisecond)))
		}
	}
	slices.Sort(gone)
	return gone, nil
}

// list returns the names of all objects in a namespace.
func (c *clients) list(ctx context.Context, namespace string) ([]string, error) {
	return c.collection(ctx, http.MethodGet, namespace)
}

// collection sends a request for all objects in a namespace, and returns their names.
func (c *clients) collection(ctx context.Context, method, namespace string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*operationTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.gateways[0]+"/api/v1/namespaces/"+namespace+"/configmaps", nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Warning") != "" {
		return nil, fmt.Errorf("%s %s: %d %s %.300s", method, namespace, response.StatusCode, response.Header.Get("Warning"), content)
	}
	var list struct {
		Items []metav1.PartialObjectMetadata `json:"items"`
	}
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// reported returns the last values of the objects that were saved as files when a cell joined again, by key. Files of earlier times do not
// count.
func (w *world) reported(cell string, since time.Time) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(w.federation.Dir(), "hub-manager-*", "state", cell+"-*", "configmaps_*.yaml"))
	if err != nil {
		return nil, err
	}
	reported := map[string]string{}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.ModTime().Before(since) {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var object struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Data     map[string]string `json:"data"`
		}
		if err := yaml.Unmarshal(content, &object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		reported[object.Metadata.Namespace+"/"+object.Metadata.Name] = object.Data["value"]
	}
	return reported, nil
}
