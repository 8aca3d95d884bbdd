package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clients use objects through gateways. They do not use client-go, whose retries would be missing in the history.
type clients struct {
	http       *http.Client
	gateways   []string // their addresses
	namespaces []string
	keys       int // number of names in each namespace
	history    *history

	mu sync.Mutex
	// strange are unexpected answers.
	strange []string
	count   map[outcome]int
}

// seen is the state of an object that a client has read.
type seen struct{ value, version string }

// run sends one random operation after the other until the context ends.
func (c *clients) run(ctx context.Context, id int, random *rand.Rand) {
	last := map[string]seen{}
	for n := 0; ctx.Err() == nil; n++ {
		all := c.all()
		q := question{key: all[random.IntN(len(all))], value: fmt.Sprintf("%d-%d", id, n)}
		known := last[q.key]
		q.verb = []verb{create, read, read, update, update, patch, remove}[random.IntN(7)]
		if q.verb == update {
			if known.version == "" {
				q.verb = read
			}
			q.expected = known.value
		}
		q.gateway = c.gateways[random.IntN(len(c.gateways))]
		var now seen
		a := c.history.ask(id, q, func() (a answer, counts bool) {
			a, now, counts = c.send(ctx, q, known.version)
			return a, counts
		})
		c.mu.Lock()
		c.count[a.outcome]++
		c.mu.Unlock()
		switch {
		case a.outcome == done && q.verb != remove:
			last[q.key] = now
		default:
			delete(last, q.key)
		}
		wait := 20
		if a.outcome == unknown {
			wait = 500 // many writes with an unknown outcome take long to check
		}
		pause(ctx, time.Duration(random.IntN(wait))*time.Millisecond)
	}
}

// all returns the keys of all objects: namespace and name.
func (c *clients) all() []string {
	var all []string
	for _, namespace := range c.namespaces {
		for i := range c.keys {
			all = append(all, fmt.Sprintf("%s/key-%d", namespace, i))
		}
	}
	return all
}

// pause waits, unless the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// operationTimeout bounds an operation.
const operationTimeout = 20 * time.Second

// send sends an operation. counts is false if it certainly had no effect.
func (c *clients) send(ctx context.Context, q question, version string) (a answer, now seen, counts bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationTimeout) // an operation that was sent is waited for
	defer cancel()
	space, name, _ := strings.Cut(q.key, "/")
	method, path, contentType := http.MethodGet, q.gateway+"/api/v1/namespaces/"+space+"/configmaps", "application/json"
	var body any
	switch q.verb {
	case create:
		method, body = http.MethodPost, configMap(name, q.value, "")
	case update:
		method, body, path = http.MethodPut, configMap(name, q.value, version), path+"/"+name
	case patch:
		method, body, path, contentType = http.MethodPatch, map[string]any{"data": map[string]string{"value": q.value}}, path+"/"+name, "application/merge-patch+json"
	case remove:
		method, path = http.MethodDelete, path+"/"+name
	default:
		path += "/" + name
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	if body == nil {
		encoded = nil
	}
	request, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(encoded))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.Do(request)
	if err != nil {
		return answer{outcome: unknown}, seen{}, true
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{outcome: unknown}, seen{}, true
	}
	if isStale(q, response) {
		return answer{outcome: unknown}, seen{}, false
	}
	if response.StatusCode >= http.StatusInternalServerError && response.Header.Get("Retry-After") != "" {
		return answer{outcome: unknown}, seen{}, false // clients repeat it, so it must not have been done
	}
	return c.parse(q, response.StatusCode, content)
}

// isStale reports whether the gateway says that an answer may be outdated. That of a write which was done is never.
func isStale(q question, response *http.Response) bool {
	if q.verb != read && response.StatusCode < http.StatusMultipleChoices {
		return false
	}
	return strings.Contains(strings.Join(response.Header.Values("Warning"), " "), "may be outdated")
}

func configMap(name, value, version string) any {
	metadata := map[string]string{"name": name}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": map[string]string{"value": value}}
}

// parse returns the outcome of an answer.
func (c *clients) parse(q question, code int, content []byte) (answer, seen, bool) {
	switch {
	case code < 300:
		var object struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Data     map[string]string `json:"data"`
		}
		if err := json.Unmarshal(content, &object); err != nil {
			return answer{outcome: unknown}, seen{}, true
		}
		a := answer{outcome: done}
		if q.verb == read {
			a.value = object.Data["value"]
		}
		return a, seen{object.Data["value"], object.Metadata.ResourceVersion}, true
	case code == http.StatusNotFound:
		return answer{outcome: missing}, seen{}, true
	case code == http.StatusConflict:
		var status metav1.Status
		_ = json.Unmarshal(content, &status) // an unreadable body is not AlreadyExists
		if status.Reason == metav1.StatusReasonAlreadyExists {
			return answer{outcome: exists}, seen{}, true
		}
		return answer{outcome: conflict}, seen{}, true
	case code == http.StatusTooManyRequests:
		return answer{outcome: unknown}, seen{}, false
	case code >= http.StatusInternalServerError:
		return answer{outcome: unknown}, seen{}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strange = append(c.strange, fmt.Sprintf("%s %s: %d: %.300s", q.verb, q.key, code, content))
	return answer{outcome: unknown}, seen{}, true
}
