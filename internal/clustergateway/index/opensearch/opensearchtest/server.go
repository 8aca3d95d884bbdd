// Package opensearchtest has a stand-in for OpenSearch, which cannot be run in tests. It answers the few requests that we send, with
// OpenSearch's rules for versions and for what a search sees, and reports every request that OpenSearch would not understand.
package opensearchtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server is a stand-in for OpenSearch.
type Server struct {
	*httptest.Server
	// Page is the largest page of a search.
	Page int

	t       testing.TB
	mu      sync.Mutex
	user    string
	pass    string
	indexes map[string]*index
	scrolls map[string][]hit
	// answer returns the status of a request, and answerItem that of an operation of a bulk; 0 for the usual one.
	answer     func(r *http.Request) int
	answerItem func(id string) int
	largest    int // bulk
	operations int
	rejected   int // requests with other credentials
}

type index struct {
	mapped     map[string]bool // our fields
	documents  map[string]Document
	tombstones map[string]int64
	// visible are the documents that searches see.
	visible map[string]Document
}

// Document is a document in an index.
type Document struct {
	Version    int64    `json:"-"`
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       string   `json:"spec"`
	Status     string   `json:"status"`
	Cellplane  struct {
		Cluster    string `json:"cluster"`
		APIVersion string `json:"apiVersion"`
	} `json:"cellplane"`
}

// Metadata is the metadata of a Document.
type Metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	CreationTimestamp string            `json:"creationTimestamp"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp *string           `json:"deletionTimestamp"`
}

type hit struct {
	ID      string `json:"_id"`
	Version int64  `json:"_version"`
}

// Start runs a Server until the test ends.
func Start(t testing.TB) *Server {
	s := &Server{Page: 2, t: t, user: "admin", pass: "secret", indexes: map[string]*index{}, scrolls: map[string][]hit{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// SetPassword changes the password of the user admin, which is "secret" at first.
func (s *Server) SetPassword(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass = password
}

// Fail lets requests and operations fail with a status; both functions may be nil, and return 0 for those that do not fail.
func (s *Server) Fail(request func(r *http.Request) int, operation func(id string) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.answerItem = request, operation
}

// Documents returns the documents of an index, by ID.
func (s *Server) Documents(name string) map[string]Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexes[name] == nil {
		return nil
	}
	return maps.Clone(s.indexes[name].documents)
}

// DeleteIndex deletes an index.
func (s *Server) DeleteIndex(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.indexes, name)
}

// Operations returns how many operations there were, and the size of the largest bulk.
func (s *Server) Operations() (count, largest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.operations, s.largest
}

// Rejected returns how many requests had other credentials.
func (s *Server) Rejected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rejected
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if user, pass, ok := r.BasicAuth(); !ok || user != s.user || pass != s.pass {
		if r.Method != http.MethodGet { // not a health check of a client that is being closed
			s.rejected++
		}
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, "Unauthorized")
		return
	}
	if s.answer != nil {
		if status := s.answer(r); status != 0 {
			s.fail(w, status, "injected_exception", "injected")
			return
		}
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	switch {
	case r.Method == http.MethodGet: // health checks of the client
		s.write(w, map[string]any{"version": map[string]string{"number": "3.0.0", "distribution": "opensearch"}})
	case len(parts) == 2 && last == "_bulk" && r.Method == http.MethodPost:
		s.bulk(w, r, parts[0], body)
	case len(parts) == 2 && parts[0] == "_search" && last == "scroll":
		s.scroll(w, r, body)
	case len(parts) == 1 && r.Method == http.MethodPut:
		s.create(w, r, parts[0], body)
	case len(parts) == 2:
		s.ofIndex(w, r, parts[0], last, body)
	default:
		s.unknown(w, r, "no such request")
	}
}

func (s *Server) unknown(w http.ResponseWriter, r *http.Request, why string) {
	s.t.Errorf("OpenSearch would not understand %s %s: %s", r.Method, r.URL, why)
	s.fail(w, http.StatusBadRequest, "illegal_argument_exception", why)
}

func (s *Server) fail(w http.ResponseWriter, status int, kind, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	s.encode(w, map[string]any{"error": map[string]any{"type": kind, "reason": reason}, "status": status})
}

func (s *Server) write(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	s.encode(w, answer)
}

func (s *Server) encode(w io.Writer, answer any) {
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}

// strict decodes JSON without unknown fields, and with nothing after it.
func strict(body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return fmt.Errorf("there is more after %s", body[:decoder.InputOffset()])
	}
	return nil
}

// create creates an index.
func (s *Server) create(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	var given struct {
		Mappings struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"mappings"`
	}
	if err := strict(body, &given); err != nil || name != strings.ToLower(name) {
		s.unknown(w, r, fmt.Sprintf("%q: %v", body, err))
		return
	}
	if s.indexes[name] != nil {
		s.fail(w, http.StatusBadRequest, "resource_already_exists_exception", "index ["+name+"] already exists")
		return
	}
	s.indexes[name] = &index{mapped: map[string]bool{}, documents: map[string]Document{}, tombstones: map[string]int64{}, visible: map[string]Document{}}
	s.mapFields(name, given.Mappings.Properties)
	s.write(w, map[string]any{"acknowledged": true, "index": name})
}

// mapFields notes which of our fields are keywords, which a term query needs.
func (s *Server) mapFields(name string, properties map[string]json.RawMessage) {
	var ours struct {
		Properties map[string]struct{ Type string }
	}
	if json.Unmarshal(properties["cellplane"], &ours) != nil {
		return
	}
	for field, of := range ours.Properties {
		s.indexes[name].mapped["cellplane."+field] = of.Type == "keyword"
	}
}

func (s *Server) ofIndex(w http.ResponseWriter, r *http.Request, name, what string, body []byte) {
	at := s.indexes[name]
	switch {
	case at == nil:
		s.fail(w, http.StatusNotFound, "index_not_found_exception", "no such index ["+name+"]")
	case what == "_mapping" && r.Method == http.MethodPut:
		var given struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if err := strict(body, &given); err != nil {
			s.unknown(w, r, err.Error())
			return
		}
		s.mapFields(name, given.Properties)
		s.write(w, map[string]any{"acknowledged": true})
	case what == "_refresh" && r.Method == http.MethodPost:
		at.visible = maps.Clone(at.documents)
		s.write(w, map[string]any{})
	case what == "_search" && r.Method == http.MethodPost:
		s.search(w, r, at, body)
	default:
		s.unknown(w, r, "no such request of an index")
	}
}

// search begins a scroll over the documents that match terms.
func (s *Server) search(w http.ResponseWriter, r *http.Request, at *index, body []byte) {
	var given struct {
		Size    int      `json:"size"`
		Version bool     `json:"version"`
		Source  bool     `json:"_source"`
		Sort    []string `json:"sort"`
		Query   struct {
			Bool struct {
				Filter []struct {
					Term map[string]string `json:"term"`
				} `json:"filter"`
			} `json:"bool"`
		} `json:"query"`
	}
	if err := strict(body, &given); err != nil || !given.Version || r.URL.Query().Get("scroll") == "" {
		s.unknown(w, r, fmt.Sprintf("%q: %v", body, err))
		return
	}
	var found []hit
	for id, document := range at.visible {
		matches := true
		for _, filter := range given.Query.Bool.Filter {
			for field, value := range filter.Term {
				actual := map[string]string{"cellplane.cluster": document.Cellplane.Cluster, "cellplane.apiVersion": document.Cellplane.APIVersion}[field]
				matches = matches && at.mapped[field] && actual == value
			}
		}
		if matches {
			found = append(found, hit{id, document.Version})
		}
	}
	slices.SortFunc(found, func(a, b hit) int { return strings.Compare(a.ID, b.ID) })
	id := "scroll" + strconv.Itoa(len(s.scrolls))
	s.scrolls[id] = found
	s.page(w, id, min(given.Size, s.Page))
}

// page answers with the next page of a scroll.
func (s *Server) page(w http.ResponseWriter, id string, size int) {
	n := min(size, len(s.scrolls[id]))
	hits := s.scrolls[id][:n]
	s.scrolls[id] = s.scrolls[id][n:]
	s.write(w, map[string]any{"_scroll_id": id, "hits": map[string]any{"hits": append([]hit{}, hits...)}})
}

func (s *Server) scroll(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Method == http.MethodDelete {
		var given struct {
			IDs []string `json:"scroll_id"`
		}
		if err := strict(body, &given); err != nil {
			s.unknown(w, r, err.Error())
		}
		return
	}
	var given struct {
		Scroll string `json:"scroll"`
		ID     string `json:"scroll_id"`
	}
	if err := strict(body, &given); err != nil || s.scrolls[given.ID] == nil {
		s.unknown(w, r, fmt.Sprintf("%q: %v", body, err))
		return
	}
	s.page(w, given.ID, s.Page)
}

// target is the metadata of an action.
type target struct {
	ID          string `json:"_id"`
	Version     int64  `json:"version"`
	VersionType string `json:"version_type"`
}

type action struct {
	Index  *target `json:"index"`
	Delete *target `json:"delete"`
}

// bulk applies the operations of a bulk.
func (s *Server) bulk(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	if of := r.Header.Get("Content-Type"); of != "application/x-ndjson" {
		s.unknown(w, r, "the content type is "+of)
		return
	}
	if !bytes.HasSuffix(body, []byte("\n")) {
		s.unknown(w, r, "the bulk request must be terminated by a newline [\\n]")
		return
	}
	s.largest = max(s.largest, len(body))
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, len(body)+1)
	var items []map[string]any
	for lines.Scan() {
		var line action
		if err := strict(lines.Bytes(), &line); err != nil || (line.Index == nil) == (line.Delete == nil) {
			s.unknown(w, r, fmt.Sprintf("malformed action %q: %v", lines.Bytes(), err))
			return
		}
		if line.Delete != nil {
			items = append(items, map[string]any{"delete": s.apply(name, line.Delete, nil)})
			continue
		}
		var document Document
		if !lines.Scan() {
			s.unknown(w, r, "an action without a document")
			return
		}
		if err := strict(lines.Bytes(), &document); err != nil || !json.Valid([]byte(document.Spec)) || !json.Valid([]byte(document.Status)) {
			s.unknown(w, r, fmt.Sprintf("malformed document %q: %v", lines.Bytes(), err))
			return
		}
		items = append(items, map[string]any{"index": s.apply(name, line.Index, &document)})
	}
	s.write(w, map[string]any{"items": items})
}

// apply applies an operation and returns its item.
func (s *Server) apply(name string, to *target, document *Document) map[string]any {
	s.operations++
	fail := func(status int, kind, reason string) map[string]any {
		return map[string]any{"_id": to.ID, "status": status, "error": map[string]any{"type": kind, "reason": reason}}
	}
	if to.ID == "" || to.VersionType != "external_gte" || to.Version <= 0 {
		s.t.Errorf("an operation on %+v: it must have an ID and a version", to)
	}
	at := s.indexes[name]
	if at == nil {
		return fail(http.StatusNotFound, "index_not_found_exception", "no such index ["+name+"]")
	}
	if s.answerItem != nil {
		if status := s.answerItem(to.ID); status != 0 {
			return fail(status, "injected_exception", "injected for a document")
		}
	}
	was, found := at.documents[to.ID]
	current := at.tombstones[to.ID]
	if found {
		current = was.Version
	}
	if current > to.Version {
		return fail(http.StatusConflict, "version_conflict_engine_exception", fmt.Sprintf("current version [%d] is higher than the one provided [%d]", current, to.Version))
	}
	if document == nil {
		delete(at.documents, to.ID)
		at.tombstones[to.ID] = to.Version
		if !found {
			return map[string]any{"_id": to.ID, "status": http.StatusNotFound, "result": "not_found"}
		}
		return map[string]any{"_id": to.ID, "status": http.StatusOK, "result": "deleted"}
	}
	document.Version = to.Version
	at.documents[to.ID] = *document
	delete(at.tombstones, to.ID)
	return map[string]any{"_id": to.ID, "status": http.StatusOK, "result": "updated"}
}
