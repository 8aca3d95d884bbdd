package engine_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// bouncer is an admission webhook of a member that refuses ConfigMaps of a namespace whose names begin with "refused",
// until relent is called.
func bouncer(t *testing.T, member ctrlclient.Client, ns, words string) (relent func()) {
	t.Helper()
	var open atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no request", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: open.Load() || !strings.HasPrefix(review.Request.Name, "refused")}
		if !review.Response.Allowed {
			review.Response.Result = &metav1.Status{Message: words}
		}
		_ = json.NewEncoder(w).Encode(review) // the client may be gone
	}))
	t.Cleanup(server.Close)
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ns}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "bouncer.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: ptr.To(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
	}}}
	createIn(t, member, namespaceRef(ns), hook)
	t.Cleanup(func() { _ = member.Delete(context.Background(), hook) })
	testenv.Eventually(t, "the member calls the webhook", func(ctx context.Context) (bool, error) {
		err := member.Create(ctx, configMap(ns, "refused-probe", nil), ctrlclient.DryRunAll)
		return err != nil && strings.Contains(err.Error(), words), err
	})
	return func() { open.Store(true) }
}

// The rejection of a member's webhook is reported on the Work, the binding and the template, with the webhook's
// message. Other members and objects are not affected, and the object is applied once the webhook admits it.
func TestMemberWebhookRejects(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const words = "images must be signed by the security team"
	relent := bouncer(t, members["member2"], ns, words)
	create(t, policy(ns, "p", []string{"ConfigMap"}), configMap(ns, "refused", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "refused", "k", "1")
	until(t, "the Work has the reason", cell, workRef("member2", "ConfigMap", ns, "refused"), func(w *workv1alpha1.Work) bool {
		applied := meta.FindStatusCondition(w.Status.Conditions, names.WorkApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && strings.Contains(applied.Message, words)
	})
	until(t, "the binding has the reason", cell, bindingRef(ns, "refused-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		items := b.Status.AggregatedStatus
		return meta.IsStatusConditionFalse(b.Status.Conditions, names.BindingFullyApplied) &&
			len(items) == 2 && items[0].Applied && !items[1].Applied && strings.Contains(items[1].AppliedMessage, words)
	})
	expectEvents := func(reason string) {
		t.Helper()
		event(t, cell, names.ExecutionNamespace("member2"), names.WorkName("ConfigMap", ns, "refused"), reason)
		event(t, cell, ns, "refused-configmap", reason)
		if e := event(t, cell, ns, "refused", reason); !strings.Contains(e.Message, "member2") {
			t.Errorf("the template's event does not name the cluster: %s", e.Message)
		}
	}
	expectEvents(names.EventSyncFailed)

	edit(t, cell, configMapRef(ns, "refused"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	delivered(t, "member1", ns, "refused", "k", "2")
	create(t, configMap(ns, "welcome", map[string]string{"k": "1"}))
	delivered(t, "member2", ns, "welcome", "k", "1")
	missing(t, "a refused object", members["member2"], configMapRef(ns, "refused"))

	relent()
	delivered(t, "member2", ns, "refused", "k", "2")
	until(t, "all is applied", cell, bindingRef(ns, "refused-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingFullyApplied)
	})
	expectEvents(names.EventSyncSucceed)
}

// What a member's quota refuses is reported, and applied once the quota allows it.
func TestMemberQuotaRefuses(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	quota := func() *corev1.ResourceQuota {
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("0")}}}
	}
	secret := func() *corev1.Secret { return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}} }
	createIn(t, members["member1"], namespaceRef(ns), quota())
	create(t, policy(ns, "p", []string{"Secret"}), secret())
	until(t, "the other member has it", members["member2"], secret(), anything[*corev1.Secret])
	until(t, "the Work has the reason", cell, workRef("member1", "Secret", ns, "s"), func(w *workv1alpha1.Work) bool {
		applied := meta.FindStatusCondition(w.Status.Conditions, names.WorkApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && strings.Contains(applied.Message, "quota")
	})
	until(t, "the binding has the reason", cell, bindingRef(ns, "s-secret"), func(b *workv1alpha2.ResourceBinding) bool {
		items := b.Status.AggregatedStatus
		return len(items) == 2 && strings.Contains(items[0].AppliedMessage, "quota") && items[1].Applied
	})
	event(t, cell, ns, "s-secret", names.EventSyncFailed)
	event(t, cell, ns, "s", names.EventSyncFailed)
	if err := members["member1"].Delete(t.Context(), quota()); err != nil {
		t.Fatal(err)
	}
	until(t, "it is there", members["member1"], secret(), anything[*corev1.Secret])
}

// An object of a megabyte is created, updated and deleted like any other. One that becomes too large for the API
// server, because its content takes six times the space in JSON, is reported on its binding and affects nothing else.
func TestLargeObjects(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	megabyte := strings.Repeat("x", 1_040_000)
	create(t, policy(ns, "p", []string{"ConfigMap"}), configMap(ns, "big", map[string]string{"k": megabyte}))
	delivered(t, "member1", ns, "big", "k", megabyte)
	delivered(t, "member2", ns, "big", "k", megabyte)
	edit(t, cell, configMapRef(ns, "big"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "y" + megabyte[1:] })
	delivered(t, "member1", ns, "big", "k", "y"+megabyte[1:])

	create(t, configMap(ns, "swells", map[string]string{"k": strings.Repeat("<", 900_000)}), configMap(ns, "small", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "small", "k", "1")
	until(t, "the binding has the reason", cell, bindingRef(ns, "swells-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		applied := meta.FindStatusCondition(b.Status.Conditions, names.BindingFullyApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && strings.Contains(applied.Message, "too large")
	})
	event(t, cell, ns, "swells-configmap", names.EventSyncWorkFailed)
	edit(t, cell, configMapRef(ns, "swells"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "1" })
	delivered(t, "member1", ns, "swells", "k", "1")
	until(t, "all is applied", cell, bindingRef(ns, "swells-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingFullyApplied)
	})
	if err := cell.Delete(t.Context(), configMapRef(ns, "big")); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "the large one is gone", members["member2"], configMapRef(ns, "big"))
}

// An override that fails is reported on the binding; existing copies stay as they are.
func TestOverrideFails(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")), configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	op := labelOverride(ns, "op", "ConfigMap", "cm", "x")
	op.Spec.OverrideRules[0].Overriders = policyv1alpha1.Overriders{Plaintext: []policyv1alpha1.PlaintextOverrider{{Path: "/data/none/here", Operator: policyv1alpha1.OverriderOpRemove}}}
	create(t, op)
	event(t, cell, ns, "cm-configmap", names.EventSyncWorkFailed)
	event(t, cell, ns, "cm", names.EventApplyOverridePolicyFailed)
	until(t, "the binding has the reason", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		applied := meta.FindStatusCondition(b.Status.Conditions, names.BindingFullyApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && strings.Contains(applied.Message, "/data/none/here")
	})
	delivered(t, "member1", ns, "cm", "k", "1")
	if err := cell.Delete(t.Context(), op); err != nil {
		t.Fatal(err)
	}
	until(t, "all is applied", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingFullyApplied)
	})
	event(t, cell, ns, "cm-configmap", names.EventSyncWorkSucceed)
}
