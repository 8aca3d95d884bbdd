package console

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// firstLoad bounds what a browser loads at the first visit, compressed.
const firstLoad = 250 << 10

func get(t *testing.T, handler http.Handler, method, path string, header ...string) *http.Response {
	t.Helper()
	request := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}

// next answers what is not the console's.
var next = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })

var reference = regexp.MustCompile(`(?:href|src)="([^"]+)"`)

func TestFirstLoad(t *testing.T) {
	handler := &Handler{Next: next}
	load := func(path string) (body []byte, size int, response *http.Response) {
		t.Helper()
		response = get(t, handler, http.MethodGet, path, "Accept-Encoding", "br;q=1, gzip")
		packed, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: status %d, encoding %q, %v", path, response.StatusCode, response.Header.Get("Content-Encoding"), err)
		}
		reader, err := gzip.NewReader(strings.NewReader(string(packed)))
		if err != nil {
			t.Fatal(err)
		}
		if body, err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
		return body, len(packed), response
	}
	page, size, response := load("/console/")
	if got := response.Header.Get("Cache-Control"); got != "no-cache" {
		t.Errorf("the page is cached: %q", got)
	}
	references := reference.FindAllStringSubmatch(string(page), -1)
	if len(references) != 3 {
		t.Fatalf("the page refers to %d files, want its icon, its styles and its script:\n%s", len(references), page)
	}
	for _, found := range references {
		_, more, response := load("/console/" + found[1])
		size += more
		if got := response.Header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s is not kept by browsers: %q", found[1], got)
		}
	}
	if size > firstLoad {
		t.Errorf("the first load is %d bytes, want at most %d", size, firstLoad)
	}
	t.Logf("the first load is %d bytes compressed", size)
	if strings.Contains(string(page), "<script>") || strings.Contains(string(page), " style=") {
		t.Error("the page has inline scripts or styles, which its policy forbids")
	}
}

func TestPaths(t *testing.T) {
	handler := &Handler{Next: next}
	for _, test := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/console/", http.StatusOK},
		{http.MethodHead, "/console/", http.StatusOK},
		{http.MethodGet, "/console", http.StatusPermanentRedirect},
		{http.MethodGet, "/console/config.json", http.StatusOK},
		{http.MethodGet, "/console/index.html", http.StatusNotFound},
		{http.MethodGet, "/console/console.js", http.StatusNotFound}, // only with its hash
		{http.MethodGet, "/console/../api", http.StatusNotFound},
		{http.MethodGet, "/console//", http.StatusNotFound},
		{http.MethodPost, "/console/", http.StatusMethodNotAllowed},
		{http.MethodDelete, "/console/config.json", http.StatusMethodNotAllowed},
		{http.MethodGet, "/consoles", http.StatusTeapot},
		{http.MethodGet, "/", http.StatusTeapot},
		{http.MethodGet, "/api/v1/pods", http.StatusTeapot},
		{http.MethodGet, "/federation/console/", http.StatusTeapot},
	} {
		if got := get(t, handler, test.method, test.path).StatusCode; got != test.status {
			t.Errorf("%s %s: status %d, want %d", test.method, test.path, got, test.status)
		}
	}
}

func TestUnchangedFileIsNotSentAgain(t *testing.T) {
	handler := &Handler{Next: next}
	etag := get(t, handler, http.MethodGet, "/console/").Header.Get("Etag")
	if got := get(t, handler, http.MethodGet, "/console/", "If-None-Match", etag).StatusCode; got != http.StatusNotModified {
		t.Errorf("status %d, want %d", got, http.StatusNotModified)
	}
	plain := get(t, handler, http.MethodGet, "/console/", "Accept-Encoding", "gzip;q=0")
	if got := plain.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("a client that refuses gzip gets %q", got)
	}
}

func TestPolicy(t *testing.T) {
	issuers := []Issuer{
		{URL: "https://sso.example.com/realms/ops", ClientID: "cellplane"}, {URL: "https://sso.example.com/other", ClientID: "x"},
		{URL: "http://plain.example.com", ClientID: "x"}, {URL: "https://a.example.com; script-src *", ClientID: "x"},
	}
	handler := &Handler{Next: next, Issuers: func() []Issuer { return issuers }}
	for _, path := range []string{"/console", "/console/", "/console/config.json", "/console/nothing"} {
		header := get(t, handler, http.MethodGet, path).Header
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self' https://sso.example.com;", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, part)
			}
		}
		for name, value := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "X-Frame-Options": "DENY"} {
			if got := header.Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", path, name, got, value)
			}
		}
	}
	without := get(t, &Handler{Next: next}, http.MethodGet, "/console/").Header.Get("Content-Security-Policy")
	if !strings.Contains(without, "connect-src 'self';") {
		t.Errorf("without issuers, the policy is %q", without)
	}
}

func TestConfigHasNothingButIssuers(t *testing.T) {
	handler := &Handler{Next: next, Issuers: func() []Issuer { return []Issuer{{URL: "https://sso.example.com", ClientID: "cellplane"}} }}
	var config map[string]any
	if err := json.NewDecoder(get(t, handler, http.MethodGet, "/console/config.json").Body).Decode(&config); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(config)
	if want := `{"issuers":[{"clientID":"cellplane","issuer":"https://sso.example.com"}]}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	body, err := io.ReadAll(get(t, &Handler{Next: next}, http.MethodGet, "/console/config.json").Body)
	if err != nil || string(body) != `{"issuers":[]}` {
		t.Errorf("without issuers: %s, %v", body, err)
	}
}

// The sources render everything as text. What would not is refused here, before a browser refuses it by the policy.
func TestSourcesHaveNoMarkupSinks(t *testing.T) {
	sinks := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|dangerously|javascript:|https?://[a-z]`)
	files := 0
	if err := filepath.WalkDir("web/src", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		source, err := os.ReadFile(path)
		if found := sinks.Find(source); found != nil {
			t.Errorf("%s uses %s", path, found)
		}
		return err
	}); err != nil || files < 10 {
		t.Errorf("%d files were looked at, %v", files, err)
	}
}
