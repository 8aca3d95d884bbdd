package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/position"
)

// encodings are the content types that clients use.
var encodings = []string{"application/json", "application/vnd.kubernetes.protobuf"}

// fill creates numbered config maps; every third has the label third=yes.
func fill(t *testing.T, client kubernetes.Interface, namespace string, count int) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range count {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%03d", i)}, Data: map[string]string{"value": "0"}}
		if i%3 == 0 {
			object.Labels = map[string]string{"third": "yes"}
		}
		group.Go(func() error {
			_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func namesOf(items []corev1.ConfigMap) []string {
	var names []string
	for _, item := range items {
		names = append(names, item.Name)
	}
	return names
}

func testList(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "list")
	fill(t, w.client, namespace, 30)
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprintf("map-%03d", i))
	}
	for _, encoding := range encodings {
		client := w.clientWith(t, encoding)
		maps := client.CoreV1().ConfigMaps(namespace)
		list, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := namesOf(list.Items); !slices.Equal(got, want) {
			t.Errorf("%s: listed %v", encoding, got)
		}
		if kind, err := position.Classify(list.ResourceVersion); err != nil || kind != position.Merged {
			t.Errorf("%s: the list's version %q is not a position: %v", encoding, list.ResourceVersion, err)
		}
		if kind, err := position.Classify(list.Items[0].ResourceVersion); err != nil || kind != position.Object {
			t.Errorf("%s: the version %q of a listed object is not that of an object: %v", encoding, list.Items[0].ResourceVersion, err)
		}
		all, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(all.Items) < 30 {
			t.Errorf("%s: listed %d in all namespaces: %v", encoding, len(all.Items), err)
		}
		labelled, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "third=yes"})
		if err != nil || len(labelled.Items) != 10 {
			t.Errorf("%s: listed %d by label: %v", encoding, len(labelled.Items), err)
		}
		one, err := maps.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=map-007"})
		if err != nil || !slices.Equal(namesOf(one.Items), []string{"map-007"}) {
			t.Errorf("%s: listed %v by name: %v", encoding, namesOf(one.Items), err)
		}
	}
	// Every API server has its own Service "kubernetes"; the client must see one.
	services, err := w.client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(services.Items) != 1 {
		t.Errorf("listed %d services, want the one called kubernetes: %v", len(services.Items), err)
	}
}

func testPages(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "pages")
	fill(t, w.client, namespace, 31)
	for _, encoding := range encodings {
		maps := w.clientWith(t, encoding).CoreV1().ConfigMaps(namespace)
		for _, limit := range []int64{1, 2, 7, 30, 31, 100} {
			var got []string
			options := metav1.ListOptions{Limit: limit}
			version, changed := "", false
			for {
				page, err := maps.List(t.Context(), options)
				if err != nil {
					t.Fatal(err)
				}
				if int64(len(page.Items)) > limit {
					t.Errorf("a page has %d items, limit %d", len(page.Items), limit)
				}
				got = append(got, namesOf(page.Items)...)
				if version == "" {
					version = page.ResourceVersion
				} else if page.ResourceVersion != version {
					t.Errorf("limit %d: the version went from %s to %s between pages", limit, version, page.ResourceVersion)
				}
				if page.Continue == "" {
					break
				}
				if page.RemainingItemCount == nil || *page.RemainingItemCount != int64(31-len(got)) {
					t.Errorf("limit %d: %v remain after %d", limit, page.RemainingItemCount, len(got))
				}
				if !changed { // later pages must show the state of the first one
					changed = true
					if err := maps.Delete(t.Context(), "map-030", metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				options.Continue = page.Continue
			}
			if len(got) != 31 || !slices.IsSorted(got) {
				t.Errorf("limit %d: the pages have %v", limit, got)
			}
			if changed {
				if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "map-030"}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	page, err := w.client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{Limit: 2, LabelSelector: "third=yes"})
	if err != nil || page.Continue == "" || page.RemainingItemCount != nil {
		t.Errorf("a page with a selector: continue %q, remaining %v, %v", page.Continue, page.RemainingItemCount, err)
	}
}

// testExpiredPage continues a list at a compacted version: the answer is 410. Clients list everything again, or continue with the token of
// the answer, which shows the latest state.
func testExpiredPage(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "expired-page")
	fill(t, w.client, namespace, 9)
	maps := w.client.CoreV1().ConfigMaps(namespace)
	page, err := maps.List(t.Context(), metav1.ListOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	token, err := position.ParseToken(page.Continue, "configmaps", namespace)
	if err != nil {
		t.Fatal(err)
	}
	for i, cell := range w.Cells {
		store := storetest.For(t, cell).Client()
		now, err := store.Get(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Compact(t.Context(), now.Header.Revision); err != nil {
			t.Fatal(err)
		}
		token.Position.Versions[i] = 2 // older than the watch caches of the API servers
	}
	expired, err := token.Encode()
	if err != nil {
		t.Fatal(err)
	}
	response := w.do(t, http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps", url.Values{"limit": {"2"}, "continue": {expired}}, nil, nil)
	if response.StatusCode != http.StatusGone || response.Header.Get("Retry-After") != "" {
		t.Errorf("got %s with Retry-After %q, want 410 without", response.Status, response.Header.Get("Retry-After"))
	}
	all, _, err := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		if options.Continue != "" {
			options.Continue = expired
		}
		return maps.List(t.Context(), options)
	})).ListWithAlloc(t.Context(), metav1.ListOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	if listed, ok := all.(*corev1.ConfigMapList); !ok || len(listed.Items) != 9 {
		t.Errorf("the pager returned %v, want 9 objects", all)
	}

	continueExpired(t, w, page, expired)
}

// testUnknownPage continues a list at a position that the gateway cannot read, such as one from before a change of the cells.
func testUnknownPage(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "unknown-page")
	fill(t, w.client, namespace, 9)
	page, err := w.client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	token, err := position.ParseToken(page.Continue, "configmaps", namespace)
	if err != nil {
		t.Fatal(err)
	}
	token.Position.Epoch += 1000
	unknown, err := token.Encode()
	if err != nil {
		t.Fatal(err)
	}
	continueExpired(t, w, page, unknown)
}

// continueExpired continues a list of nine objects after its first page with an expired token, and with the token of the answer.
func continueExpired(t *testing.T, w *world, page *corev1.ConfigMapList, expired string) {
	t.Helper()
	maps := w.client.CoreV1().ConfigMaps(page.Items[0].Namespace)
	_, err := maps.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: expired})
	var gone apierrors.APIStatus
	if !errors.As(err, &gone) || !apierrors.IsResourceExpired(err) {
		t.Fatalf("got %v, want 410", err)
	}
	got, version := namesOf(page.Items), ""
	for next := gone.Status().Continue; next != ""; {
		rest, err := maps.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: next})
		if err != nil {
			t.Fatalf("continuing with the token of the error: %v", err)
		}
		if version == "" {
			version = rest.ResourceVersion
		}
		if rest.ResourceVersion != version {
			t.Errorf("the version went from %s to %s between pages", version, rest.ResourceVersion)
		}
		got, next = append(got, namesOf(rest.Items)...), rest.Continue
		if next != "" && (rest.RemainingItemCount == nil || *rest.RemainingItemCount != int64(9-len(got))) {
			t.Errorf("%v remain after %d", rest.RemainingItemCount, len(got))
		}
	}
	if len(got) != 9 || !slices.IsSorted(got) {
		t.Errorf("the pages have %v", got)
	}
}

func testListVersions(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "list-versions")
	fill(t, w.client, namespace, 9)
	maps := w.client.CoreV1().ConfigMaps(namespace)
	before, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "map-004", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	list := func(options metav1.ListOptions) (int, error) {
		got, err := maps.List(t.Context(), options)
		if err != nil {
			return 0, err
		}
		return len(got.Items), nil
	}
	for _, test := range []struct {
		name    string
		options metav1.ListOptions
		want    []int
		isError func(error) bool
	}{
		{"newest", metav1.ListOptions{}, []int{8}, nil},
		{"any", metav1.ListOptions{ResourceVersion: "0"}, []int{8, 9}, nil},
		{"exact", metav1.ListOptions{ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}, []int{9}, nil},
		{"not older", metav1.ListOptions{ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, []int{8, 9}, nil},
		{"not older by default", metav1.ListOptions{ResourceVersion: before.ResourceVersion}, []int{8, 9}, nil},
		{"of an object", metav1.ListOptions{ResourceVersion: before.Items[0].ResourceVersion}, []int{8}, nil},
		{"exactly of an object", metav1.ListOptions{ResourceVersion: before.Items[0].ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}, nil, apierrors.IsResourceExpired},
		{"of an unknown cell", metav1.ListOptions{ResourceVersion: "1999000000000001"}, nil, apierrors.IsResourceExpired},
		{"of an object, by name", metav1.ListOptions{ResourceVersion: before.Items[0].ResourceVersion, FieldSelector: "metadata.name=" + before.Items[0].Name}, []int{1}, nil},
		{"foreign", metav1.ListOptions{ResourceVersion: "1" + strings.Repeat("7", 29)}, nil, apierrors.IsResourceExpired},
		{"of another epoch", metav1.ListOptions{ResourceVersion: "10000000099" + strings.Repeat(fmt.Sprintf("%019d", 5), 3)}, nil, apierrors.IsResourceExpired},
		{"no number", metav1.ListOptions{ResourceVersion: "x"}, nil, apierrors.IsBadRequest},
		{"exactly anything", metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, nil, apierrors.IsInvalid},
		{"match without version", metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}, nil, apierrors.IsInvalid},
		{"version and continue", metav1.ListOptions{ResourceVersion: "5", Continue: "abc"}, nil, apierrors.IsBadRequest},
		{"foreign continue token", metav1.ListOptions{Continue: "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0"}, nil, apierrors.IsBadRequest},
	} {
		got, err := list(test.options)
		switch {
		case test.isError != nil && !test.isError(err):
			t.Errorf("%s: %d items, %v", test.name, got, err)
		case test.isError == nil && (err != nil || !slices.Contains(test.want, got)):
			t.Errorf("%s: %d items, want %v: %v", test.name, got, test.want, err)
		}
	}
	onHub := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	for _, test := range []struct{ method, path string }{
		{http.MethodGet, "/api/v1/namespaces/" + namespace + "/configmaps"}, {http.MethodDelete, "/api/v1/namespaces/" + namespace + "/configmaps"},
		{http.MethodGet, onHub}, {http.MethodDelete, onHub}, {http.MethodGet, "/api/v1/namespaces"},
	} {
		response := w.do(t, test.method, test.path, url.Values{"shardSelector": {"x"}}, nil, nil)
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %s with a shardSelector: %s, want 400", test.method, test.path, response.Status)
		}
	}
}

// testForms lists in all content types that clients use.
func testForms(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "forms")
	fill(t, w.client, namespace, 12)
	path := "/api/v1/namespaces/" + namespace + "/configmaps"

	var table metav1.Table
	for include, wantObject := range map[string]bool{"": true, "None": false, "Object": true} {
		table = metav1.Table{}
		body := w.get(t, path, url.Values{"includeObject": {include}}, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
		if err := json.Unmarshal(body, &table); err != nil {
			t.Fatal(err)
		}
		if len(table.Rows) != 12 || table.Rows[5].Cells[0] != "map-005" {
			t.Errorf("includeObject=%s: the table is %s", include, body)
		}
		if got := len(table.Rows[0].Object.Raw) > len("null"); got != wantObject {
			t.Errorf("includeObject=%s: the row's object is %s", include, table.Rows[0].Object.Raw)
		}
	}
	var list corev1.ConfigMapList
	body := w.get(t, path, nil, "application/yaml")
	if err := yaml.Unmarshal(body, &list); err != nil || len(list.Items) != 12 || body[0] == '{' {
		t.Errorf("the YAML list: %v: %s", err, body)
	}
	for _, encoding := range encodings {
		config := w.gateway.Config(t)
		config.ContentType = encoding
		client, err := metadata.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		partial, err := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).List(t.Context(), metav1.ListOptions{Limit: 5})
		if err != nil || len(partial.Items) != 5 || partial.Items[4].Name != "map-004" || partial.Continue == "" {
			t.Errorf("%s: the metadata: %v, %v", encoding, partial, err)
		}
	}
	response := w.do(t, http.MethodGet, path, nil, http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}}, nil)
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "application/vnd.kubernetes.protobuf") {
		t.Errorf("protobuf alone: %s, %s", response.Status, response.Header.Get("Content-Type"))
	}
	response = w.do(t, http.MethodGet, path, nil, http.Header{"Accept": {"text/html"}}, nil)
	if response.StatusCode != http.StatusNotAcceptable {
		t.Errorf("HTML: %s", response.Status)
	}
}

func (w *world) clientWith(t testing.TB, encoding string) kubernetes.Interface {
	t.Helper()
	config := w.gateway.Config(t)
	config.ContentType = encoding
	return clientFor(t, config)
}

// do sends a request as an administrator. The answer's body is closed when the test ends.
func (w *world) do(t testing.TB, method, path string, query url.Values, header http.Header, body *strings.Reader) *http.Response {
	t.Helper()
	return doWith(t, w.gateway.Config(t), method, path, query, header, body)
}

func doWith(t testing.TB, config *rest.Config, method, path string, query url.Values, header http.Header, body *strings.Reader) *http.Response {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, http.NoBody)
	if body != nil {
		request, err = http.NewRequestWithContext(t.Context(), method, config.Host+path, body)
	}
	if err != nil {
		t.Fatal(err)
	}
	request.URL.RawQuery = query.Encode()
	for key, values := range header {
		request.Header[key] = values
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// get returns what a path answers an administrator.
func (w *world) get(t testing.TB, path string, query url.Values, accept string) []byte {
	t.Helper()
	response := w.do(t, http.MethodGet, path, query, http.Header{"Accept": {accept}}, nil)
	return readOK(t, response)
}
