package documents

import (
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

	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

// announced removes from documents what discovery does not show.
type announced struct{ *kinds.Announced }

// index removes from the index the documents of which nothing is announced. Clients cache documents by the hashes in the index, so the
// hashes also depend on what is announced.
func (a announced) index(document []byte) ([]byte, error) {
	var index indexDocument
	if err := json.Unmarshal(document, &index); err != nil {
		return nil, err
	}
	for path, at := range index.Paths {
		if !a.keeps("/" + path) {
			delete(index.Paths, path)
			continue
		}
		address, err := withMark(at.ServerRelativeURL, a.mark("/"+path))
		if err != nil {
			return nil, err
		}
		at.ServerRelativeURL = address
		index.Paths[path] = at
	}
	return json.Marshal(index)
}

// indexDocument lists the addresses of the documents.
type indexDocument struct {
	Paths map[string]struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	} `json:"paths"`
}

// withMark returns the address of a document with a mark in its hash.
func withMark(address, mark string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	query := parsed.Query()
	query.Set("hash", query.Get("hash")+mark)
	parsed.RawQuery = query.Encode()
	return parsed.String(), nil
}

// mark changes whenever something else is announced of what the document for an API path describes.
func (a announced) mark(path string) string {
	if gv, rest, found := version(path); found && len(rest) == 0 {
		return a.MarkOf(gv)
	}
	return ""
}

// description removes from an OpenAPI document, of version 2 or 3, the operations that are not announced and the schemas that only they
// need. It returns nil if there is nothing to remove.
func (a announced) description(document []byte) ([]byte, error) {
	var fields, paths map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(fields["paths"], &paths); err != nil {
		return nil, fmt.Errorf("reading its paths: %w", err)
	}
	removed := false
	for path, item := range paths {
		left, some, err := a.operations(path, item)
		if err != nil {
			return nil, err
		}
		removed = removed || some
		if left == nil {
			delete(paths, path)
		} else {
			paths[path] = left
		}
	}
	if !removed {
		return nil, nil
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

// operations removes from what is described at a path the operations that are not announced, and reports whether there were some. It
// returns nil if none is left.
func (a announced) operations(path string, item json.RawMessage) (left json.RawMessage, removed bool, err error) {
	at, found := objectsAt(path)
	switch {
	case !found && a.keeps(path), found && !a.Limited() && a.Has(at.resource, at.subresource, ""):
		return item, false, nil
	case !found || !a.Limited():
		return nil, true, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(item, &fields); err != nil {
		return nil, false, fmt.Errorf("reading the operations of %s: %w", path, err)
	}
	some := false
	for field := range fields {
		verbs, isMethod := at.verbs(field)
		switch {
		case !isMethod: // parameters of all operations, and the like
		case slices.ContainsFunc(verbs, func(verb string) bool { return a.Has(at.resource, at.subresource, verb) }):
			some = true
		default:
			delete(fields, field)
			removed = true
		}
	}
	switch {
	case !some:
		return nil, true, nil
	case !removed:
		return item, false, nil
	}
	left, err = json.Marshal(fields)
	return left, true, err
}

// keeps reports whether a path that is not that of objects belongs to an announced version or group, or to none.
func (a announced) keeps(path string) bool {
	if gv, _, found := version(path); found {
		return a.HasVersion(gv)
	}
	group, isGroup := strings.CutPrefix(strings.Trim(path, "/"), "apis/")
	return !isGroup || a.HasGroup(group)
}

// objects are the objects that a path is about.
type objects struct {
	resource    schema.GroupVersionResource
	subresource string
	// watched is set for the old paths of watches, and one for the paths of one object.
	watched, one bool
}

// objectsAt returns what the path of a description is about, if it is about objects.
func objectsAt(path string) (at objects, found bool) {
	gv, rest, found := version(path)
	if !found || len(rest) == 0 {
		return objects{}, false
	}
	if at.watched = rest[0] == "watch" && len(rest) > 1; at.watched {
		rest = rest[1:]
	}
	if len(rest) > 2 && rest[0] == "namespaces" && !isSubresource(rest[2]) {
		rest = rest[2:]
	}
	at.resource, at.one = gv.WithResource(rest[0]), len(rest) > 1
	if len(rest) > 2 {
		at.subresource = rest[2]
	}
	return at, true
}

// verbs returns the verbs that an operation is described for, and whether a field is an operation at all.
func (at objects) verbs(field string) (verbs []string, isMethod bool) {
	switch field {
	case "get", "head":
		switch {
		case at.watched:
			return []string{"watch"}, true
		case at.one:
			return []string{"get"}, true
		default:
			return []string{"list", "watch"}, true
		}
	case "post":
		return []string{"create"}, true
	case "put":
		return []string{"update"}, true
	case "patch":
		return []string{"patch"}, true
	case "delete":
		if at.one {
			return []string{"delete"}, true
		}
		return []string{"deletecollection"}, true
	case "options", "trace":
		return nil, true
	default:
		return nil, false
	}
}

// version returns the group and version of a path, and the segments that follow.
func version(path string) (gv schema.GroupVersion, rest []string, found bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 1:
		return schema.GroupVersion{Version: parts[1]}, parts[2:], true
	case parts[0] == "apis" && len(parts) > 2:
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:], true
	default:
		return schema.GroupVersion{}, nil, false
	}
}

// isSubresource reports whether the segment after a namespace is a subresource of the namespace.
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

// references finds the schemas that a part of a document refers to.
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

var errForm = errors.New("unknown content type")

// inForm encodes a description in a content type.
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
