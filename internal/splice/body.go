package splice

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// Translate returns the resourceVersion of the API server for one of the gateway. It is called for all that are not empty, also those
// that need no translation. Rewrite returns its errors.
type Translate func(version string) (string, error)

// ErrUnsupported reports a body of a content type that cannot be translated; the response is 415.
var ErrUnsupported = errors.New("bodies in CBOR are not supported; use JSON or protobuf")

// Body is the type of a request's body, which determines where resourceVersions are in it.
type Body int

// The bodies with resourceVersions.
const (
	// ObjectBody is an object of any kind, a subresource like Scale included, or a patch of one.
	ObjectBody Body = iota
	// DeleteOptionsBody are the options of a delete or deletecollection.
	DeleteOptionsBody
	// EvictionBody is an Eviction, which is an object with DeleteOptions.
	EvictionBody
)

// versionPaths are the paths of resourceVersions in a body.
type versionPaths struct {
	json  [][]string
	proto [][]protowire.Number
}

func (b Body) paths() versionPaths {
	switch b {
	case DeleteOptionsBody:
		return versionPaths{
			json:  [][]string{{"preconditions", "resourceVersion"}},
			proto: [][]protowire.Number{{objbytes.UnknownRaw, objbytes.DeleteOptionsPreconditions, objbytes.PreconditionsVersion}},
		}
	case EvictionBody:
		return versionPaths{
			json: [][]string{{"metadata", "resourceVersion"}, {"deleteOptions", "preconditions", "resourceVersion"}},
			proto: [][]protowire.Number{
				{objbytes.UnknownRaw, objbytes.ObjectMetadata, objbytes.MetaVersion},
				{objbytes.UnknownRaw, objbytes.EvictionDeleteOptions, objbytes.DeleteOptionsPreconditions, objbytes.PreconditionsVersion},
			},
		}
	default:
		return versionPaths{
			json:  [][]string{{"metadata", "resourceVersion"}},
			proto: [][]protowire.Number{{objbytes.UnknownRaw, objbytes.ObjectMetadata, objbytes.MetaVersion}},
		}
	}
}

// Rewrite translates the resourceVersions in a request's body. A body that cannot be read is returned unchanged, for the API server to
// refuse it; so is one that needs no translation.
func (b Body) Rewrite(contentType string, body []byte, translate Translate) ([]byte, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if contentType == "" {
		mediaType, err = "application/json", nil // the default of API servers
	}
	if err != nil {
		return body, nil // the API server refuses it
	}
	paths := b.paths()
	r := rewriter{translate: translate}
	switch mediaType {
	case "application/json", "application/merge-patch+json", "application/strategic-merge-patch+json":
		return r.json(body, paths.json)
	case "application/json-patch+json":
		return r.jsonPatch(body, paths.json)
	case "application/yaml", "application/apply-patch+yaml":
		return r.yaml(body, paths.json)
	case ProtobufContentType:
		return r.proto(body, paths.proto)
	case "application/cbor", "application/cbor-seq", "application/apply-patch+cbor":
		return nil, ErrUnsupported
	default:
		return body, nil
	}
}

// rewriter collects the places to change in a body.
type rewriter struct {
	translate Translate
	edits     []replacement
	// err is an error of translate. It takes precedence over a malformed body.
	err error
}

type replacement struct {
	span
	with string
}

func (r *rewriter) json(body []byte, paths [][]string) ([]byte, error) {
	err := r.walk(body, span{Start: 0, End: len(body)}, paths)
	return r.result(body, err)
}

// result applies the edits; a malformed body stays as it is.
func (r *rewriter) result(body []byte, malformed error) ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	if malformed != nil || len(r.edits) == 0 {
		return body, nil // the API server refuses it
	}
	out := make([]byte, 0, len(body))
	at := 0
	for _, edit := range r.edits {
		out = append(out, body[at:edit.Start]...)
		out = objbytes.AppendQuoted(out, edit.with)
		at = edit.End
	}
	return append(out, body[at:]...), nil
}

// walk follows the paths in an object. Members that occur twice are all changed: the API server decides which one counts.
func (r *rewriter) walk(b []byte, at span, paths [][]string) error {
	return eachMember(b[:at.End], at.Start, func(key []byte, value span) error {
		for _, path := range paths {
			if string(key) != path[0] {
				continue
			}
			if err := r.follow(b, value, path[1:]); err != nil {
				return err
			}
		}
		return nil
	})
}

// follow follows the rest of a path, which may end at the value itself. Values of unexpected types are kept.
func (r *rewriter) follow(b []byte, at span, path []string) error {
	value := at.Of(b)
	switch {
	case len(path) > 0 && objbytes.IsObject(value):
		return r.walk(b, at, [][]string{path})
	case len(path) == 0 && objbytes.IsString(value):
		return r.change(value, at)
	default:
		return nil
	}
}

func (r *rewriter) change(quoted []byte, at span) error {
	version, err := objbytes.String(quoted)
	if err != nil {
		return err
	}
	with, err := r.translated(version)
	if err != nil {
		return err
	}
	if with != string(version) {
		r.edits = append(r.edits, replacement{at, with})
	}
	return nil
}

func (r *rewriter) translated(version []byte) (string, error) {
	if len(version) == 0 {
		return "", nil
	}
	with, err := r.translate(string(version))
	if err != nil {
		r.err = err
	}
	return with, err
}

// jsonPatch rewrites the values of operations on a resourceVersion, or on an object that contains it.
func (r *rewriter) jsonPatch(body []byte, paths [][]string) ([]byte, error) {
	err := objbytes.EachElement(body, 0, func(operation span) error {
		pointer, err := objbytes.FindMember(body, operation, "path")
		if err != nil || !objbytes.IsString(pointer.Of(body)) {
			return err
		}
		target, err := objbytes.String(pointer.Of(body))
		if err != nil {
			return err
		}
		value, err := objbytes.FindMember(body, operation, "value")
		if err != nil || value == (span{}) {
			return err
		}
		for _, path := range paths {
			if rest, inside := below(string(target), path); inside {
				if err := r.follow(body, value, rest); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return r.result(body, err)
}

// below returns the rest of a path below a JSON pointer; inside is false if the pointer leads elsewhere.
func below(pointer string, path []string) (rest []string, inside bool) {
	if pointer == "" {
		return path, true
	}
	segments := strings.Split(pointer, "/")[1:]
	if len(segments) > len(path) || pointer[0] != '/' {
		return nil, false
	}
	for i, segment := range segments {
		if strings.ReplaceAll(strings.ReplaceAll(segment, "~1", "/"), "~0", "~") != path[i] {
			return nil, false
		}
	}
	return path[len(segments):], true
}

// yaml rewrites a body in YAML. One that needs a change becomes JSON, which is YAML too, by the same conversion API servers make.
func (r *rewriter) yaml(body []byte, paths [][]string) ([]byte, error) {
	if !bytes.Contains(body, []byte("resourceVersion")) {
		return body, nil
	}
	converted, err := yaml.YAMLToJSON(body)
	if err != nil {
		return body, nil // the API server refuses it
	}
	changed, err := r.json(converted, paths)
	if err != nil {
		return nil, err
	}
	if len(r.edits) == 0 {
		return body, nil
	}
	return changed, nil
}

func (r *rewriter) proto(body []byte, paths [][]protowire.Number) ([]byte, error) {
	if !bytes.HasPrefix(body, []byte(objbytes.ProtobufPrefix)) {
		return body, nil
	}
	out := append(make([]byte, 0, len(body)), []byte(objbytes.ProtobufPrefix)...)
	out, changed, err := r.message(out, body[len([]byte(objbytes.ProtobufPrefix)):], paths)
	if r.err != nil {
		return nil, r.err
	}
	if err != nil || !changed {
		return body, nil // the API server refuses it
	}
	return out, nil
}

// message appends a message with the fields at the ends of the paths translated.
func (r *rewriter) message(dst, message []byte, paths [][]protowire.Number) (out []byte, changed bool, err error) {
	err = objbytes.EachField(message, func(f objbytes.Field) error {
		content := f.Value
		var inner [][]protowire.Number
		isVersion := false
		for _, path := range paths {
			if !f.IsBytes(path[0]) {
				continue
			}
			if len(path) == 1 {
				isVersion = true
			} else {
				inner = append(inner, path[1:])
			}
		}
		switch {
		case isVersion:
			with, err := r.translated(content)
			if err != nil {
				return err
			}
			if with != string(content) {
				changed = true
				dst = objbytes.AppendString(dst, f.Number, with)
				return nil
			}
		case inner != nil:
			rewritten, innerChanged, err := r.message(nil, content, inner)
			if err != nil {
				return fmt.Errorf("field %d: %w", f.Number, err)
			}
			if innerChanged {
				changed = true
				dst = objbytes.AppendBytes(dst, f.Number, rewritten)
				return nil
			}
		}
		dst = append(dst, f.Whole...)
		return nil
	})
	return dst, changed, err
}
