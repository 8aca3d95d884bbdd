package interpreter

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
)

// hookServer is a webhook over real HTTPS.
type hookServer struct{ *httptest.Server }

func newHook(t *testing.T, answer func(*configv1alpha1.ResourceInterpreterRequest) *configv1alpha1.ResourceInterpreterResponse) hookServer {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var exchange configv1alpha1.ResourceInterpreterContext
		if err := json.NewDecoder(r.Body).Decode(&exchange); err != nil || exchange.Request == nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		exchange.Response = answer(exchange.Request)
		exchange.Response.UID = exchange.Request.UID
		exchange.Request = nil
		_ = json.NewEncoder(w).Encode(exchange)
	}))
	t.Cleanup(server.Close)
	return hookServer{server}
}

func (h hookServer) configuration(name string, ops []configv1alpha1.InterpreterOperation, group, version, kind string) []*configv1alpha1.ResourceInterpreterWebhookConfiguration {
	return []*configv1alpha1.ResourceInterpreterWebhookConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []configv1alpha1.ResourceInterpreterWebhook{{
			Name:                       "hook.example.com",
			ClientConfig:               admissionregistrationv1.WebhookClientConfig{URL: &h.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})},
			InterpreterContextVersions: []string{"v1alpha1"},
			Rules: []configv1alpha1.RuleWithOperations{{
				Operations: ops, Rule: configv1alpha1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Kinds: []string{kind}},
			}},
		}},
	}}
}
