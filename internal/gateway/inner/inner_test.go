package inner_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/inner"
)

func TestAnswer(t *testing.T) {
	ask := func(handler http.HandlerFunc) *inner.Answer {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Accept", "application/json")
		return inner.Do(handler, r)
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		code    int
		body    string
		err     string
	}{
		"nothing": {func(http.ResponseWriter, *http.Request) {}, 200, "", ""},
		"a stream": {func(w http.ResponseWriter, _ *http.Request) {
			for _, word := range []string{"one ", "after ", "another"} {
				_, _ = io.WriteString(w, word)
				if err := http.NewResponseController(w).Flush(); err != nil {
					panic(err)
				}
			}
		}, 200, "one after another", ""},
		"words": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "words") }, 200, "words", ""},
		"two codes": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusConflict)
		}, 201, "", ""},
		"a status": {func(w http.ResponseWriter, r *http.Request) {
			forward.WriteError(w, r, apierrors.NewBadRequest("so not"))
		}, 400, "so not", "so not"},
		"plain text": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) }, 404, "404 page not found", "404 page not found"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(test.handler)
			passed := httptest.NewRecorder()
			got.CopyTo(passed)
			if got.Code() != test.code || passed.Code != test.code || !strings.Contains(passed.Body.String(), test.body) {
				t.Errorf("got %d, passed on %d %q", got.Code(), passed.Code, passed.Body)
			}
			switch err := got.Err(); {
			case test.err == "" && err != nil, test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("the error is %v, want %q", err, test.err)
			}
		})
	}
}

// TestWarnings checks that warnings that were added before stay beside those of the handler.
func TestWarnings(t *testing.T) {
	passed := httptest.NewRecorder()
	passed.Header().Set("Warning", "before")
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Warning", "of the handler") })
	inner.Do(handler, httptest.NewRequest(http.MethodGet, "/", http.NoBody)).CopyTo(passed)
	if got := passed.Header().Values("Warning"); !slices.Equal(got, []string{"before", "of the handler"}) {
		t.Errorf("got the warnings %q", got)
	}
}
