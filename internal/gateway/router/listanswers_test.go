package router

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Tables are told from other lists also if the API server indents its answer, and nothing of the answer is lost.
func TestFormOfTables(t *testing.T) {
	for _, test := range []struct {
		body  string
		table bool
	}{
		{`{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}`, true},
		{"{\n  \"kind\": \"Table\",\n  \"apiVersion\": \"meta.k8s.io/v1\",\n  \"rows\": []\n}", true},
		{`{"kind":"TableList","apiVersion":"example.io/v1","items":[]}`, false},
		{"{\n  \"kind\": \"PodList\",\n  \"apiVersion\": \"v1\"}", false},
		{`{}`, false},
	} {
		response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(test.body))}
		f, err := (&answers{responses: []*http.Response{response}}).form()
		if err != nil || f.table != test.table {
			t.Errorf("%s: table is %t, %v; want %t", test.body, f.table, err, test.table)
		}
		if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != test.body {
			t.Errorf("%s is read as %s, %v", test.body, rest, err)
		}
	}
}
