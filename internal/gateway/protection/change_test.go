package protection

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// TestWarnings checks that the guard's own warnings stay beside those of an answer, whether it is held back or not.
func TestWarnings(t *testing.T) {
	for _, code := range []int{http.StatusOK, http.StatusConflict} {
		w := httptest.NewRecorder()
		answer := &conflictWriter{w: w, header: http.Header{}}
		w.Header().Set("Warning", "of the guard")
		answer.Header().Set("Warning", "of the cell")
		answer.WriteHeader(code)
		answer.release()
		if got := w.Header().Values("Warning"); w.Code != code || !slices.Equal(got, []string{"of the guard", "of the cell"}) {
			t.Errorf("%d with the warnings %q, want %d with both", w.Code, got, code)
		}
	}
}
