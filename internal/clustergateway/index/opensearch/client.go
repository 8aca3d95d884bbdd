// Package opensearch keeps documents in OpenSearch.
//
// It uses the transport of OpenSearch's client, which chooses nodes and authenticates, but not its API, which reads whole answers into
// memory.
package opensearch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/opensearch-project/opensearch-go/v4"

	"github.com/cellplane/cellplane/internal/clustergateway/index"
)

const (
	// maxAnswer bounds an answer, and maxError what is read of an error.
	maxAnswer = 64 << 20
	maxError  = 64 << 10
	// responseTime is how long the headers of an answer may take.
	responseTime = 30 * time.Second
)

// Client is a connection to OpenSearch.
type Client struct {
	client *opensearch.Client
}

// CheckAddress returns an error if an address cannot be used.
func CheckAddress(address string) error {
	at, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("it is no URL")
	case at.Scheme != "http" && at.Scheme != "https" || at.Host == "":
		return errors.New("it must begin with https:// or http://")
	case at.User != nil:
		return errors.New("it must not have credentials; they belong in the Secret")
	case at.RawQuery != "" || at.Fragment != "":
		return errors.New("it must have no query")
	case strings.ContainsAny(address, " \t\n"):
		return errors.New("it must have no spaces")
	}
	return nil
}

// Open returns a Client. Only these addresses get the credentials: nodes are not discovered and redirects not followed.
func Open(addresses []string, credentials index.Credentials) (index.Backend, error) {
	for _, address := range addresses {
		if err := CheckAddress(address); err != nil {
			return nil, fmt.Errorf("the address %q cannot be used: %w", address, err)
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = responseTime
	discover := false
	client, err := opensearch.NewClient(opensearch.Config{
		Addresses: addresses, Username: credentials.Username, Password: credentials.Password, CACert: credentials.CABundle,
		Transport: transport, DisableRetry: true, DiscoverNodesOnStart: &discover, MaxRetryClusterHealth: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to OpenSearch: %w", err)
	}
	return &Client{client}, nil
}

// Close implements index.Backend.
func (c *Client) Close() error { return c.client.Close() }

// statusError is an error of OpenSearch.
type statusError struct {
	status int
	kind   string
	reason string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("OpenSearch answered %d %s", e.status, http.StatusText(e.status))
	switch {
	case e.status == http.StatusUnauthorized:
		return text + ": username or password are wrong"
	case e.status == http.StatusForbidden:
		text += ": the user lacks rights"
	}
	if e.kind != "" {
		text += ": " + e.kind + ": " + e.reason
	}
	return text
}

// Unwrap implements the interface of errors.Is.
func (e *statusError) Unwrap() error {
	if e.status == http.StatusRequestEntityTooLarge {
		return index.ErrTooLarge
	}
	return nil
}

func isStatus(err error, status int, kinds ...string) bool {
	var found *statusError
	if !errors.As(err, &found) || found.status != status {
		return false
	}
	for _, kind := range kinds {
		if found.kind == kind {
			return true
		}
	}
	return len(kinds) == 0
}

// do sends a request and decodes the answer into result, unless it is nil.
func (c *Client) do(ctx context.Context, method, path, contentType string, body []byte, result any) error {
	request, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if len(body) == 0 {
		request.Body = http.NoBody
	} else {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.client.Stream(request)
	if response != nil {
		defer response.Body.Close()
	}
	if err != nil {
		return fmt.Errorf("OpenSearch cannot be reached: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return errorOf(response)
	}
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(result); err != nil {
		return fmt.Errorf("reading the answer of OpenSearch: %w", err)
	}
	return nil
}

func errorOf(response *http.Response) error {
	found := &statusError{status: response.StatusCode}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	if err != nil {
		return found
	}
	var answer struct{ Error json.RawMessage }
	if json.Unmarshal(body, &answer) != nil {
		return found // not an answer of OpenSearch, but of something before it
	}
	var cause failure
	if json.Unmarshal(answer.Error, &cause) == nil {
		found.kind, found.reason = cause.Type, cause.Reason
	}
	return found
}

// failure is why a request, or an item of a bulk, failed.
type failure struct {
	Type   string   `json:"type"`
	Reason string   `json:"reason"`
	Cause  *failure `json:"caused_by"`
}

func (f *failure) String() string {
	text := f.Type + ": " + f.Reason
	if f.Cause != nil && f.Cause.Reason != "" {
		text += ": " + f.Cause.Reason
	}
	return text
}

const jsonType = "application/json"

// mapping describes documents. Spec and status are text to search in. Annotations are not searchable: they may be longer than a term, and
// there may be more of them than an index has fields.
const mapping = `{
  "apiVersion": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
  "kind": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
  "metadata": {"properties": {
    "name": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
    "namespace": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
    "creationTimestamp": {"type": "date"},
    "deletionTimestamp": {"type": "date"},
    "labels": {"type": "flat_object"},
    "annotations": {"type": "object", "enabled": false}
  }},
  "spec": {"type": "text"},
  "status": {"type": "text"},
  "cellplane": ` + sourceMapping + `
}`

const sourceMapping = `{"properties": {"cluster": {"type": "keyword"}, "apiVersion": {"type": "keyword"}}}`

// Prepare implements index.Backend. An index that is there keeps its mapping, to which only our own fields are added.
func (c *Client) Prepare(ctx context.Context, name string) error {
	err := c.do(ctx, http.MethodPut, "/"+url.PathEscape(name)+"/_mapping", jsonType, []byte(`{"properties": {"cellplane": `+sourceMapping+`}}`), nil)
	if !isStatus(err, http.StatusNotFound) {
		return err
	}
	err = c.do(ctx, http.MethodPut, "/"+url.PathEscape(name), jsonType, []byte(`{"mappings": {"properties": `+mapping+`}}`), nil)
	if isStatus(err, http.StatusBadRequest, "resource_already_exists_exception") { // another replica was faster
		return nil
	}
	return err
}
