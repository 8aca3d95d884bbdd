package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	stdjson "encoding/json"
)

// watch merges the events of all targets. A watch without a version begins with one event that has all objects.
func (t *Transport) watch(r *http.Request, info *request.RequestInfo) (*http.Response, error) {
	version := r.URL.Query().Get("resourceVersion")
	var listed answer
	if version == "" || version == "0" {
		if listed = t.list(r, info); listed.err != nil {
			return respond(r, listed)
		}
		var list unstructured.Unstructured
		if err := json.Unmarshal(listed.body, &list.Object); err != nil {
			return nil, err
		}
		version = list.GetResourceVersion()
	}
	from := versions{}
	if err := json.Unmarshal([]byte(version), &from); err != nil {
		return respond(r, failure(apierrors.NewBadRequest(fmt.Sprintf("%q is not the resourceVersion of a list of several clusters", version))))
	}
	ctx, cancel := context.WithCancel(r.Context())
	reader, writer := io.Pipe()
	m := &merger{Transport: t, request: r, info: info, events: stdjson.NewEncoder(writer)}
	go func() {
		defer writer.Close()
		if listed.body != nil {
			m.write(metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Raw: listed.body}})
		}
		m.follow(ctx, from)
	}()
	return newResponse(r, http.StatusOK, &stream{PipeReader: reader, cancel: cancel}), nil
}

// list lists what a watch is about.
func (t *Transport) list(r *http.Request, info *request.RequestInfo) answer {
	listing, all := r.Clone(r.Context()), *info
	query := listing.URL.Query()
	for _, name := range []string{"watch", "resourceVersion", "timeoutSeconds"} {
		query.Del(name)
	}
	listing.URL.RawQuery, all.Verb = query.Encode(), "list"
	return t.read(listing, &all)
}

// merger writes the events of all targets to one stream.
type merger struct {
	*Transport
	request *http.Request
	info    *request.RequestInfo

	writing sync.Mutex
	events  *stdjson.Encoder
}

// follow watches all targets that have a version, until all watches have ended.
func (m *merger) follow(ctx context.Context, from versions) {
	var streams sync.WaitGroup
	for _, target := range m.Targets {
		version, found := from[target.Name]
		if !found {
			continue
		}
		streams.Go(func() {
			if err := m.followOne(ctx, target, version); ctx.Err() == nil {
				m.fail(err)
			}
		})
	}
	streams.Wait()
}

// followOne watches a target. It returns why the watch has ended.
func (m *merger) followOne(ctx context.Context, target Target, version string) error {
	response, err := m.send(ctx, m.request, target, map[string]string{"resourceVersion": version, "limit": ""})
	if err != nil {
		return unreachable(target, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return unreachable(target, err)
		}
		return refusal(target, m.info, response.StatusCode, body)
	}
	m.mu.Lock()
	columns := m.headers[m.request.URL.Path]
	m.mu.Unlock()
	converting := converter{target: target, header: columns}
	for decoder := stdjson.NewDecoder(response.Body); ; {
		var event metav1.WatchEvent
		if err := decoder.Decode(&event); err != nil {
			return errors.New(about(target, "has ended the watch"))
		}
		if event.Type == string(watch.Error) {
			return refusal(target, m.info, http.StatusInternalServerError, event.Object.Raw)
		}
		if event.Object.Raw, err = converting.convert(event.Object.Raw); err != nil {
			return unreadable(target, err)
		}
		m.write(event)
	}
}

func (m *merger) write(event metav1.WatchEvent) {
	m.writing.Lock()
	defer m.writing.Unlock()
	_ = m.events.Encode(event) // it fails once nobody reads
}

// converter writes the cluster on the objects of a target's events.
type converter struct {
	target  Target
	header  header
	columns []metav1.TableColumnDefinition // as the first event has given them
}

func (c *converter) convert(raw []byte) ([]byte, error) {
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err == nil && table.Kind == "Table" {
		if table.ColumnDefinitions != nil {
			c.columns = table.ColumnDefinitions
		}
		table.Rows, table.ColumnDefinitions = c.header.rows(c.target, c.columns, table.Rows), nil
		return json.Marshal(table)
	}
	var object unstructured.Unstructured
	if err := json.Unmarshal(raw, &object.Object); err != nil {
		return nil, err
	}
	mark(c.target, &object)
	return json.Marshal(object.Object)
}

// stream is the body of a merged watch.
type stream struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the watches of all targets.
func (s *stream) Close() error {
	s.cancel()
	return s.PipeReader.Close()
}
