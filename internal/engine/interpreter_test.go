package engine_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// I2, I4: when a webhook is added or removed, the objects of its kinds are interpreted again.
func TestWebhookAddedAndRemoved(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"LimitRange"}, inMembers("member1")))
	create(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lr"}})
	health := func(want workv1alpha2.ResourceHealth) {
		t.Helper()
		until(t, "its health is "+string(want), cell, bindingRef(ns, "lr-limitrange"), func(b *workv1alpha2.ResourceBinding) bool {
			return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Health == want
		})
	}
	health(workv1alpha2.ResourceHealthy)

	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var exchange configv1alpha1.ResourceInterpreterContext
		if err := json.NewDecoder(r.Body).Decode(&exchange); err != nil || exchange.Request == nil {
			http.Error(w, "no request", http.StatusBadRequest)
			return
		}
		exchange.Response = &configv1alpha1.ResourceInterpreterResponse{UID: exchange.Request.UID, Successful: true, Healthy: ptr.To(false)}
		_ = json.NewEncoder(w).Encode(exchange) // a client that is gone does not matter
	}))
	t.Cleanup(hook.Close)
	configuration := &configv1alpha1.ResourceInterpreterWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ns}, Webhooks: []configv1alpha1.ResourceInterpreterWebhook{{
		Name: "judge.example.com", InterpreterContextVersions: []string{"v1alpha1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: ptr.To(hook.URL + "/judge"), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
		},
		Rules: []configv1alpha1.RuleWithOperations{{
			Operations: []configv1alpha1.InterpreterOperation{configv1alpha1.InterpreterOperationInterpretHealth},
			Rule:       configv1alpha1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Kinds: []string{"LimitRange"}},
		}},
	}}}
	create(t, configuration)
	health(workv1alpha2.ResourceUnhealthy)
	if err := cell.Delete(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	health(workv1alpha2.ResourceHealthy)
}
