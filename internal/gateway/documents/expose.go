package documents

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
)

// Exposed are the resources that documents tell of.
type Exposed map[schema.GroupResource]bool

// index leaves out of the index of documents those of groups of which nothing is exposed. Clients keep documents by the hashes in it,
// which therefore say what is exposed, too.
func (e Exposed) index(document []byte) ([]byte, error) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(document, &index); err != nil {
		return nil, err
	}
	mark := e.mark()
	for path, at := range index.Paths {
		if !e.keeps("/" + path) {
			delete(index.Paths, path)
			continue
		}
		address, err := url.Parse(at.ServerRelativeURL)
		if err != nil {
			return nil, err
		}
		query := address.Query()
		query.Set("hash", query.Get("hash")+mark)
		address.RawQuery = query.Encode()
		at.ServerRelativeURL = address.String()
		index.Paths[path] = at
	}
	return json.Marshal(index)
}

// mark is another one if something else is exposed.
func (e Exposed) mark() string {
	all := make([]string, 0, len(e))
	for resource := range e {
		all = append(all, resource.String())
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, " ")))
	return hex.EncodeToString(sum[:4])
}

// description leaves out of an OpenAPI document, of version 2 or 3, the paths of what is not exposed, and the schemas that nothing else
// needs.
func (e Exposed) description(document []byte) ([]byte, error) {
	var fields, paths map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(fields["paths"], &paths); err != nil {
		return nil, fmt.Errorf("reading its paths: %w", err)
	}
	for path := range paths {
		if !e.keeps(path) {
			delete(paths, path)
		}
	}
	var err error
	if fields["paths"], err = json.Marshal(paths); err != nil {
		return nil, err
	}
	if definitions, found := fields["definitions"]; found {
		fields["definitions"], err = needed(definitions, fields["paths"])
	} else if components, found := fields["components"]; found {
		fields["components"], err = neededComponents(components, fields["paths"])
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// keeps reports whether a path is one of something exposed, or of no resource at all.
func (e Exposed) keeps(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case parts[0] == "api" && len(parts) > 1:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 1:
		group, parts = parts[1], parts[min(3, len(parts)):]
	default:
		return true
	}
	if len(parts) > 0 && parts[0] == "watch" {
		parts = parts[1:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" && !isSubresource(parts[2]) {
		parts = parts[2:]
	}
	if len(parts) > 0 {
		return e[schema.GroupResource{Group: group, Resource: parts[0]}]
	}
	for resource := range e {
		if resource.Group == group {
			return true
		}
	}
	return false
}

// isSubresource reports whether what follows a namespace is its own.
func isSubresource(name string) bool { return name == "status" || name == "finalize" }

func neededComponents(components, paths json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(components, &fields); err != nil {
		return nil, fmt.Errorf("reading its components: %w", err)
	}
	schemas, found := fields["schemas"]
	if !found {
		return components, nil
	}
	var err error
	if fields["schemas"], err = needed(schemas, paths); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// references finds what a part of a document refers to.
var references = regexp.MustCompile(`"\$ref"\s*:\s*"#/(?:definitions|components/schemas)/([^"]+)"`)

// needed returns the schemas that paths refer to, and those that these refer to.
func needed(schemas, paths json.RawMessage) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(schemas, &all); err != nil {
		return nil, fmt.Errorf("reading its schemas: %w", err)
	}
	kept := map[string]json.RawMessage{}
	for next := []json.RawMessage{paths}; len(next) > 0; next = next[1:] {
		for _, match := range references.FindAllSubmatch(next[0], -1) {
			name := string(match[1])
			if one, found := all[name]; found && kept[name] == nil {
				kept[name] = one
				next = append(next, one)
			}
		}
	}
	return json.Marshal(kept)
}

var errForm = errors.New("there is no such form")

// inForm returns a description in the form that a client wants.
func inForm(document []byte, form string) ([]byte, error) {
	switch form {
	case jsonForm:
		return document, nil
	case protoFormV2:
		return handler.ToProtoBinary(document)
	case protoFormV3:
		return handler3.ToV3ProtoBinary(document)
	default:
		return nil, errForm
	}
}
