package inner_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/limits"
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

// TestAnswersAreBounded checks that an answer counts in the budget of its request, and that too large a one is an error for the client.
func TestAnswersAreBounded(t *testing.T) {
	budget := limits.NewBudget(8<<20, time.Millisecond)
	owner := limits.Owner{Name: "someone"}
	first := budget.Open(owner)
	defer first.Close()
	if err := first.Grow(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 1<<20)
	for _, test := range []struct {
		what    string
		request string
		grant   *limits.Grant
		parts   int
		want    int
	}{
		{"little", "GET /", budget.Open(owner), 0, http.StatusOK},
		{"more than the user may hold", "GET /", budget.Open(owner), 1, http.StatusTooManyRequests},
		{"more in a dry run", "PATCH /?dryRun=All", budget.Open(owner), 1, http.StatusTooManyRequests},
		{"more in the answer to a write", "PATCH /", budget.Open(owner), 1, http.StatusOK},
		{"what another user may hold", "GET /", budget.Open(limits.Owner{Name: "another"}), 2, http.StatusOK},
		{"more than any answer may have, without a budget", "GET /", nil, 65, http.StatusRequestEntityTooLarge},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		r := httptest.NewRequestWithContext(limits.WithGrant(t.Context(), test.grant), method, path, http.NoBody)
		answer := inner.Do(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range test.parts {
				if _, err := w.Write(part); err != nil {
					panic(http.ErrAbortHandler) // as handlers do whose client is gone
				}
			}
		}), r)
		passed := httptest.NewRecorder()
		answer.CopyTo(passed)
		if answer.Code() != test.want || passed.Code != test.want || (answer.Err() == nil) != (test.want == http.StatusOK) || answer.TooLarge() != (test.want == http.StatusRequestEntityTooLarge) {
			t.Errorf("%s: got %d and %v, passed on %d", test.what, answer.Code(), answer.Err(), passed.Code)
		}
		if held := test.grant.Held(); test.want == http.StatusOK && test.request == "GET /" && held < int64(test.parts*len(part)) {
			t.Errorf("%s: %d bytes are counted", test.what, held)
		}
		if answer.Release(); test.grant.Held() != 0 {
			t.Errorf("%s: %d bytes are counted after the answer was released", test.what, test.grant.Held())
		}
		test.grant.Close()
	}
}
