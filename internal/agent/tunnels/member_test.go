package tunnels

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// seen is what a server gets.
type seen struct {
	Method, URI, Host string
	Header            http.Header
}

// TestMember checks what the agent passes on, and that it adds its credentials to nothing else.
func TestMember(t *testing.T) {
	reached := 0
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached++
		_ = json.NewEncoder(w).Encode(seen{r.Method, r.RequestURI, r.Host, r.Header})
	}))
	defer api.Close()
	handler, err := newMember(&rest.Config{Host: api.URL + "/prefix", BearerToken: "of-the-agent", TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	alice := http.Header{"Impersonate-User": {"alice"}, "Impersonate-Group": {"a", "b"}}
	with := func(key string, values ...string) http.Header {
		header := alice.Clone()
		header[key] = values
		return header
	}
	for _, test := range []struct {
		what, method, uri string
		header            http.Header
		want              string // the URI that is served; "" if it is refused
	}{
		{"a request", "GET", "/api/v1/pods?watch=true&labelSelector=a%3Db", alice, "/prefix/api/v1/pods?watch=true&labelSelector=a%3Db"},
		{"an escaped path", "GET", "/api/v1/namespaces/x/services/y/proxy/a%2Fb;c", alice, "/prefix/api/v1/namespaces/x/services/y/proxy/a%2Fb;c"},
		{"another host", "GET", "http://169.254.169.254/latest", alice, "/prefix/latest"},
		{"a change", "DELETE", "/api/v1/pods", alice, "/prefix/api/v1/pods"},
		{"a connection to another host", "CONNECT", "other:443", alice, ""},
		{"no path", "OPTIONS", "*", alice, ""},
		{"nobody", "GET", "/api/v1/secrets", http.Header{}, ""},
		{"an empty user", "GET", "/api/v1/secrets", with("Impersonate-User", ""), ""},
		{"two users", "GET", "/api/v1/secrets", with("Impersonate-User", "alice", "root"), ""},
		{"only groups", "GET", "/api/v1/secrets", http.Header{"Impersonate-Group": {"a"}}, ""},
		{"a user that the connection would lose", "GET", "/api/v1/secrets", with("Connection", "Impersonate-User, Impersonate-Group"), "/prefix/api/v1/secrets"},
		{"a token", "GET", "/api/v1/secrets", with("Authorization", "Bearer other"), ""},
		{"a UID", "GET", "/api/v1/secrets", with("Impersonate-Uid", "1"), ""},
		{"an extra", "GET", "/api/v1/secrets", with("Impersonate-Extra-Scopes", "x"), ""},
		{"a user in other letters", "GET", "/api/v1/secrets", with("Impersonate_user", "root"), ""},
		{"the headers of a front proxy", "GET", "/api/v1/secrets", with("X-Remote-User", "root"), ""},
	} {
		before := reached
		r := httptest.NewRequestWithContext(t.Context(), test.method, test.uri, nil)
		r.Header = test.header.Clone()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		if test.want == "" {
			if reached != before || answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), `"kind":"Status"`) {
				t.Errorf("%s: answered %d: %s", test.what, answer.Code, answer.Body)
			}
			continue
		}
		var got seen
		if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
			t.Errorf("%s: answered %d, %v", test.what, answer.Code, err)
			continue
		}
		if got.URI != test.want || got.Method != test.method || got.Host != strings.TrimPrefix(api.URL, "https://") {
			t.Errorf("%s: served %s %s at %s, want %s", test.what, got.Method, got.URI, got.Host, test.want)
		}
		if fmt.Sprint(got.Header["Impersonate-User"], got.Header["Impersonate-Group"], got.Header["Authorization"]) != "[alice] [a b] [Bearer of-the-agent]" {
			t.Errorf("%s: served with %v", test.what, got.Header)
		}
	}

	api.Close()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
	r.Header = alice
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	if said, _ := io.ReadAll(answer.Body); answer.Code != http.StatusServiceUnavailable || !strings.Contains(string(said), "cannot reach the API server") {
		t.Errorf("without an API server: %d: %s", answer.Code, said)
	}
}
