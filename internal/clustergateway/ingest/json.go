package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cellplane/cellplane/internal/clustercache/generic"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// jsonEvents reads the events of a watch in JSON.
type jsonEvents struct {
	limited *bounded
	decoder *json.Decoder
}

func newJSONEvents(from io.Reader) *jsonEvents {
	limited := &bounded{from: from}
	return &jsonEvents{limited: limited, decoder: json.NewDecoder(limited)}
}

// event returns the next event. The error is io.EOF at the end of the watch.
func (j *jsonEvents) event() (event, error) {
	j.limited.left = maxFrame
	var next struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := j.decoder.Decode(&next); err != nil {
		return event{}, err
	}
	if next.Type == string(watch.Error) {
		status, ok := jsonStatus(next.Object)
		if !ok {
			return event{}, fmt.Errorf("%w: an error without a status", errMalformed)
		}
		raw, err := status.Marshal()
		return event{kind: []byte(next.Type), raw: raw}, err
	}
	if next.Type == "" {
		return event{}, fmt.Errorf("%w: an event without a type", errMalformed)
	}
	raw, err := generic.Encode(next.Object)
	if err != nil {
		return event{}, malformed(err)
	}
	return event{kind: []byte(next.Type), raw: raw}, nil
}

// bounded is a reader that fails if more than some bytes are read for one event.
type bounded struct {
	from io.Reader
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: an event of more than %d bytes", errMalformed, maxFrame)
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func parseJSONPage(body []byte) (page, error) {
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return page{}, malformed(err)
	}
	p := page{version: list.Metadata.ResourceVersion, marker: list.Metadata.Continue}
	if p.version == "" {
		return p, fmt.Errorf("%w: a list without a resourceVersion", errMalformed)
	}
	for _, item := range list.Items {
		raw, err := generic.Encode(item)
		if err != nil {
			return p, malformed(err)
		}
		p.items = append(p.items, raw)
	}
	return p, nil
}

// jsonStatus returns the status that a response in JSON is.
func jsonStatus(body []byte) (*metav1.Status, bool) {
	status := &metav1.Status{}
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) || json.Unmarshal(body, status) != nil || status.Kind != "Status" {
		return nil, false
	}
	return status, true
}

// namespaceOf returns the namespace of an object, "" if it has none.
func namespaceOf(raw []byte) string {
	metadata, err := objbytes.ProtobufMetadata(raw)
	if err != nil {
		return ""
	}
	namespace, err := objbytes.LastBytes(metadata.Value, objbytes.MetaNamespace)
	if err != nil {
		return ""
	}
	return string(namespace)
}
