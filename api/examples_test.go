package api_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api"
)

// examples returns the documents in testdata, by file name without extension. A file has several documents if some
// fields exclude each other.
func examples(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	paths, err := filepath.Glob("testdata/*_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]*unstructured.Unstructured{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		reader := yamlutil.NewYAMLReader(bufferedReader(content))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("reading %s: %v", path, err)
			}
			object := map[string]any{}
			if err := yaml.UnmarshalStrict(document, &object); err != nil {
				t.Fatalf("decoding %s: %v", path, err)
			}
			found[name] = append(found[name], &unstructured.Unstructured{Object: jsonNumbers(object).(map[string]any)})
		}
	}
	return found
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// ownKinds returns the kinds of the API, without lists and what every group has.
func ownKinds(t *testing.T) map[schema.GroupVersionKind]reflect.Type {
	t.Helper()
	own := map[schema.GroupVersionKind]reflect.Type{}
	for kind, typ := range newScheme(t).AllKnownTypes() {
		if strings.HasPrefix(typ.PkgPath(), modulePath) && !strings.HasSuffix(kind.Kind, "List") {
			own[kind] = typ
		}
	}
	return own
}

const modulePath = "github.com/cellplane/cellplane/api/"

func TestEveryKindHasAnExample(t *testing.T) {
	documents := examples(t)
	for kind := range ownKinds(t) {
		name := kind.Group + "_" + strings.ToLower(kind.Kind)
		if len(documents[name]) == 0 {
			t.Errorf("%s has no example: write testdata/%s.yaml", kind, name)
		}
		for _, document := range documents[name] {
			if document.GroupVersionKind() != kind {
				t.Errorf("testdata/%s.yaml holds a %s", name, document.GroupVersionKind())
			}
		}
		delete(documents, name)
	}
	for name := range documents {
		t.Errorf("testdata/%s.yaml belongs to no kind", name)
	}
}

func TestRoundTrip(t *testing.T) {
	scheme := newScheme(t)
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true})
	for name, documents := range examples(t) {
		t.Run(name, func(t *testing.T) {
			for _, document := range documents {
				input, err := document.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				decoded, _, err := strict.Decode(input, nil, nil)
				if err != nil {
					t.Fatalf("decoding: %v", err)
				}
				// Encode a copy, so that the test also covers the generated deep copy.
				var output bytes.Buffer
				if err := strict.Encode(decoded.DeepCopyObject(), &output); err != nil {
					t.Fatalf("encoding: %v", err)
				}
				got := map[string]any{}
				if err := yaml.Unmarshal(output.Bytes(), &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(document.Object, jsonNumbers(got)); diff != "" {
					t.Errorf("encoding what was decoded changed it (-before +after):\n%s", diff)
				}
				converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(decoded)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(document.Object, jsonNumbers(converted)); diff != "" {
					t.Errorf("converting what was decoded changed it (-before +after):\n%s", diff)
				}
			}
		})
	}
}

// TestExamplesAreComplete requires that every field of every type declared beside the kind is set somewhere in the
// kind's example.
func TestExamplesAreComplete(t *testing.T) {
	documents := examples(t)
	for kind, typ := range ownKinds(t) {
		name := kind.Group + "_" + strings.ToLower(kind.Kind)
		seen := coverage{pkg: typ.PkgPath(), fields: map[reflect.Type]map[string]bool{}}
		seen.declare(typ)
		for _, document := range documents[name] {
			seen.visit(typ, document.Object)
		}
		for typ, fields := range seen.fields {
			for field, set := range fields {
				if !set {
					t.Errorf("testdata/%s.yaml never sets the field %s of %s", name, field, typ.Name())
				}
			}
		}
	}
}

// coverage records which fields of a package's types occur in documents.
type coverage struct {
	pkg    string
	fields map[reflect.Type]map[string]bool
}

var (
	objectMeta = reflect.TypeFor[metav1.ObjectMeta]()
	typeMeta   = reflect.TypeFor[metav1.TypeMeta]()
)

// declare records all fields reachable from a type.
func (c coverage) declare(typ reflect.Type) {
	typ = element(typ)
	if typ.Kind() != reflect.Struct || typ.PkgPath() != c.pkg || c.fields[typ] != nil {
		return
	}
	c.fields[typ] = map[string]bool{}
	for field := range jsonFields(typ) {
		c.fields[typ][field.name] = false
		c.declare(field.typ)
	}
}

// visit marks the fields that a value sets.
func (c coverage) visit(typ reflect.Type, value any) {
	typ = element(typ)
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			c.visit(typ, item)
		}
	case map[string]any:
		fields, ours := c.fields[typ]
		if !ours {
			return
		}
		for field := range jsonFields(typ) {
			if inner, set := value[field.name]; set {
				fields[field.name] = true
				c.visit(field.typ, inner)
			}
		}
	}
}

type jsonField struct {
	name string
	typ  reflect.Type
}

// jsonFields yields the fields of a struct as JSON sees them, with those of embedded structs.
func jsonFields(typ reflect.Type) func(yield func(jsonField) bool) {
	return func(yield func(jsonField) bool) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Type == typeMeta || field.Type == objectMeta || name == "-":
			case name == "" && field.Anonymous:
				for inner := range jsonFields(element(field.Type)) {
					if !yield(inner) {
						return
					}
				}
			default:
				if !yield(jsonField{name: name, typ: field.Type}) {
					return
				}
			}
		}
	}
}

// element strips pointers, slices and maps.
func element(typ reflect.Type) reflect.Type {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
		typ = typ.Elem()
	}
	return typ
}
