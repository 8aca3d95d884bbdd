package splice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/testenv"
)

const (
	asTable   = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asPartial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// server is a real API server. Two of its namespaces stand for two cells.
type server struct {
	t          *testing.T
	url        string
	http       *http.Client
	client     kubernetes.Interface
	namespaces []string
}

func newServer(t *testing.T) *server {
	plane := testenv.SharedAPIServer(t)
	config := plane.RESTConfig()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, url: config.Host, http: client, client: plane.Client(t), namespaces: []string{plane.Namespace(t), plane.Namespace(t)}}
	slices.Sort(s.namespaces)
	for _, namespace := range s.namespaces {
		for _, name := range []string{"a", "b", "c"} {
			s.create(namespace, name)
		}
	}
	return s
}

func (s *server) create(namespace, name string) *corev1.ConfigMap {
	s.t.Helper()
	object, err := s.client.CoreV1().ConfigMaps(namespace).Create(s.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "splice"}}, Data: map[string]string{"x": `{"metadata":"]}`},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return object
}

func (s *server) do(ctx context.Context, method, path string, header map[string]string, body []byte) *http.Response {
	s.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := s.http.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// lists returns the answers of both cells.
func (s *server) lists(accept, query string) [][]byte {
	s.t.Helper()
	var bodies [][]byte
	for _, namespace := range s.namespaces {
		response := s.do(s.t.Context(), http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps?"+query, map[string]string{"Accept": accept}, nil)
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			s.t.Fatalf("%s, %v: %s", response.Status, err, body)
		}
		bodies = append(bodies, body)
	}
	return bodies
}

func readers(bodies [][]byte) []io.Reader {
	result := make([]io.Reader, len(bodies))
	for i, body := range bodies {
		result[i] = bytes.NewReader(body)
	}
	return result
}

func TestMergeAnswersOfAPIServers(t *testing.T) {
	s := newServer(t)
	var wanted []string
	for _, namespace := range s.namespaces {
		for _, name := range []string{"a", "b", "c"} {
			wanted = append(wanted, namespace+"/"+name)
		}
	}
	var keys []string
	options := splice.ListOptions{
		Choose: func(candidates []*splice.Item) int { keys = append(keys, candidates[0].Key()); return 0 },
		Finish: func(p splice.Page) (splice.Metadata, error) {
			for _, version := range p.Versions {
				if kind, err := position.Classify(version); kind != position.Plain || err != nil {
					return splice.Metadata{}, fmt.Errorf("a list has the resourceVersion %q", version)
				}
			}
			return splice.Metadata{ResourceVersion: "77"}, nil
		},
	}
	for accept, merge := range map[string]func(io.Writer, [][]byte) (splice.Page, error){
		"application/json": func(w io.Writer, b [][]byte) (splice.Page, error) { return splice.MergeJSON(w, readers(b), options) },
		asPartial:          func(w io.Writer, b [][]byte) (splice.Page, error) { return splice.MergeJSON(w, readers(b), options) },
		asTable: func(w io.Writer, b [][]byte) (splice.Page, error) {
			return splice.MergeTables(w, readers(b), splice.TableOptions{ListOptions: options})
		},
		splice.ProtobufContentType: func(w io.Writer, b [][]byte) (splice.Page, error) { return splice.MergeProto(w, readers(b), options) },
	} {
		keys = nil
		var out bytes.Buffer
		page, err := merge(&out, s.lists(accept, "labelSelector=test=splice"))
		if err != nil || page.Items != 6 || !slices.Equal(keys, wanted) {
			t.Errorf("%s: %d items %v, %v", accept, page.Items, keys, err)
		}
		if accept != splice.ProtobufContentType && !json.Valid(out.Bytes()) {
			t.Errorf("%s: the merged list is not valid: %s", accept, out.Bytes())
		}
	}
}

// API servers accept the tokens that we build.
func TestContinueAtAPIServers(t *testing.T) {
	s := newServer(t)
	selector := "labelSelector=test=splice"
	namespace := s.namespaces[0]
	for path, scope := range map[string]string{"/api/v1/namespaces/" + namespace + "/configmaps?": namespace, "/api/v1/configmaps?": ""} {
		var list corev1.ConfigMapList
		read := func(query string) {
			list = corev1.ConfigMapList{}
			response := s.do(t.Context(), http.MethodGet, path+query, nil, nil)
			if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s, %v", path+query, response.Status, err)
			}
		}
		read(selector + "&limit=1")
		first := list.Items[0]
		version, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		token := position.Token{Resource: "configmaps", Namespace: scope, After: first.Namespace + "/" + first.Name}
		for _, at := range []uint64{version, 0} {
			read(selector + "&limit=1&continue=" + token.ForCell(at))
			if len(list.Items) != 1 || list.Items[0].Namespace+"/"+list.Items[0].Name <= token.After {
				t.Errorf("%s continues after %s with %v", path, token.After, list.Items)
			}
			if at != 0 && list.ResourceVersion != strconv.FormatUint(version, 10) {
				t.Errorf("%s continues at version %s, want %d", path, list.ResourceVersion, version)
			}
		}
	}
}

func TestEventsOfAPIServers(t *testing.T) {
	s := newServer(t)
	for accept, encoding := range map[string]splice.Encoding{
		"application/json": splice.JSON,
		asTable:            splice.JSON,
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1": splice.JSON,
		splice.ProtobufContentType:                                     splice.Protobuf,
	} {
		t.Run(accept, func(t *testing.T) {
			namespace := s.namespaces[0]
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			response := s.do(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=test=splice", map[string]string{"Accept": accept}, nil)
			reader := splice.NewEventReader(response.Body, encoding, 0)
			var seen []string
			next := func() *splice.Event {
				event, err := reader.Next()
				for err == nil && event.Type == splice.Bookmark && !event.InitialEventsEnd {
					event, err = reader.Next() // API servers send bookmarks at any time
				}
				if err != nil {
					t.Fatalf("%v after %v", err, seen)
				}
				seen = append(seen, strings.TrimSpace(string(event.Type)+" "+event.Object.Name))
				again, err := splice.ParseEvent(unframe(event.Append(nil, "123"), encoding), encoding)
				if err != nil || again.Object.ResourceVersion != "123" || again.InitialEventsEnd != event.InitialEventsEnd || again.Object.UID != event.Object.UID {
					t.Fatalf("%+v became %+v, %v", event, again, err)
				}
				return event
			}
			for !next().InitialEventsEnd {
			}
			object := s.create(namespace, "new")
			if event := next(); event.Object.ResourceVersion != object.ResourceVersion || event.Object.UID != string(object.UID) || event.Object.Label("test") != "splice" {
				t.Errorf("the creation of %+v is read as %+v", object.ObjectMeta, event.Object)
			}
			if err := s.client.CoreV1().ConfigMaps(namespace).Delete(ctx, "new", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			next()
			if want := []string{"ADDED a", "ADDED b", "ADDED c", "BOOKMARK", "ADDED new", "DELETED new"}; !slices.Equal(seen, want) {
				t.Errorf("saw %v, want %v", seen, want)
			}
		})
	}
}

func unframe(b []byte, encoding splice.Encoding) []byte {
	if encoding == splice.Protobuf {
		return b[4:]
	}
	return b
}

func TestBodiesForAPIServers(t *testing.T) {
	s := newServer(t)
	namespace := s.namespaces[0]
	for name, test := range map[string]struct {
		method, contentType string
		body                splice.Body
		content             string // %s is the resourceVersion
	}{
		"update":          {http.MethodPut, "application/json", splice.ObjectBody, `{"metadata":{"name":"NAME","resourceVersion":"%s"},"data":{"y":"1"}}`},
		"update in YAML":  {http.MethodPut, "application/yaml", splice.ObjectBody, "metadata:\n  name: NAME\n  resourceVersion: \"%s\"\ndata: {y: \"2\"}\n"},
		"merge patch":     {http.MethodPatch, "application/merge-patch+json", splice.ObjectBody, `{"metadata":{"resourceVersion":"%s"},"data":{"y":"3"}}`},
		"strategic patch": {http.MethodPatch, "application/strategic-merge-patch+json", splice.ObjectBody, `{"metadata":{"resourceVersion":"%s"},"data":{"y":"4"}}`},
		"json patch":      {http.MethodPatch, "application/json-patch+json", splice.ObjectBody, `[{"op":"test","path":"/metadata/resourceVersion","value":"%s"},{"op":"add","path":"/data/y","value":"5"}]`},
		"apply":           {http.MethodPatch, "application/apply-patch+yaml", splice.ObjectBody, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: NAME\n  resourceVersion: \"%s\"\ndata: {y: \"6\"}\n"},
		"delete":          {http.MethodDelete, "application/json", splice.DeleteOptionsBody, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"%s"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			object := s.create(namespace, strings.ReplaceAll(strings.ToLower(name), " ", "-"))
			path := "/api/v1/namespaces/" + namespace + "/configmaps/" + object.Name + "?fieldManager=test"
			content := strings.ReplaceAll(test.content, "NAME", object.Name)
			send := func(version, plain string) int {
				t.Helper()
				body, err := test.body.Rewrite(test.contentType, fmt.Appendf(nil, content, version), func(v string) (string, error) {
					if v != version {
						return "", fmt.Errorf("asked to translate %q", v)
					}
					return plain, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return s.do(t.Context(), test.method, path, map[string]string{"Content-Type": test.contentType}, body).StatusCode
			}
			merged, err := position.Position{Epoch: 3, Versions: []uint64{7, 8}}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if code := send(merged, "1"); code != http.StatusConflict && code != http.StatusUnprocessableEntity {
				t.Errorf("with an old version the answer is %d", code)
			}
			if code := send(merged, object.ResourceVersion); code != http.StatusOK {
				t.Errorf("with the right version the answer is %d", code)
			}
		})
	}
}
