package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// testAudit checks that the records of changes name cell and epoch, and that changes are refused if they cannot be recorded.
func testAudit(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "audit")
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "logs", "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	audited := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) {
		o.Audit.PolicyFile, o.Audit.LogOptions.Path = policy, log
	})
	maps := audited.Client(t).CoreV1().ConfigMaps(namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{names.DeletionProtectedLabel: names.DeletionProtectedAlways}}}
	if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "x", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("deleting a protected object: %v", err)
	}
	created, deleted := completed(t, log, "create"), completed(t, log, "delete")
	cell := w.Cells[ownerOf(t, w, namespace, "x")].Name()
	if created.Annotations["cellplane.io/cell"] != cell || created.Annotations["cellplane.io/epoch"] != "1" || created.Annotations["cellplane.io/admission"] != "allowed" || created.User.Username != "cellplane-admin" {
		t.Errorf("the record of the creation is %+v, want cell %s", created, cell)
	}
	if created.Annotations["cellplane.io/surface"] != "cluster" {
		t.Errorf("the record of the creation is %+v, want the surface cluster", created)
	}
	federation := audited.Config(t)
	federation.Host += "/federation"
	if _, err := clientFor(t, federation).CoreV1().ConfigMaps(namespace).Patch(t.Context(), "x", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseComplete} {
		if patched := recorded(t, log, "patch", stage); patched.Annotations["cellplane.io/surface"] != "federation" {
			t.Errorf("the record of the patch in stage %s is %+v, want the surface federation", stage, patched)
		}
	}
	fill(t, w.client, namespace, 6)
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "third=yes"}); err != nil {
		t.Fatal(err)
	}
	if all := completed(t, log, "deletecollection"); all.Annotations["cellplane.io/cell"] != "all" || all.Annotations["cellplane.io/admission"] != "allowed" {
		t.Errorf("the record of the deleted collection is %+v", all)
	}
	if !strings.HasPrefix(deleted.Annotations["cellplane.io/admission"], "denied") || deleted.ResponseStatus.Code != 403 {
		t.Errorf("the record of the refused deletion is %+v", deleted)
	}

	// Replace the directory of the log by a file, so that the log cannot be opened.
	if err := os.RemoveAll(filepath.Dir(log)); err != nil {
		t.Fatal(err)
	}
	unwritable := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) {
		o.Audit.PolicyFile, o.Audit.LogOptions.Path = policy, filepath.Join(dir, "broken", "audit.log")
	})
	if err := os.RemoveAll(filepath.Join(dir, "broken")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config := unwritable.Config(t)
	maps = clientFor(t, config).CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "y"}}, metav1.CreateOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("a change that cannot be recorded: %v, want 500", err)
	}
	if _, err := w.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "y", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object exists: %v, want NotFound", err)
	}
	if _, err := maps.Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
		t.Errorf("a read, which needs no record: %v", err)
	}
}

// testAuditWebhook sends the records to a webhook: a change whose record the webhook refuses is not made.
func testAuditWebhook(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "audit-webhook")
	var refuses atomic.Bool
	records := make(chan auditv1.Event, 100)
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil || refuses.Load() {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		for _, event := range list.Items {
			records <- event
		}
	}))
	defer hook.Close()
	dir := t.TempDir()
	policy, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "webhook.kubeconfig")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	target := &rest.Config{Host: hook.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: caFile(t, hook)}}
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"webhook": target}, "webhook"), file); err != nil {
		t.Fatal(err)
	}
	maps := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) {
		o.Audit.PolicyFile, o.Audit.WebhookOptions.ConfigFile = policy, file
		o.Audit.WebhookOptions.BatchOptions.Mode, o.Audit.WebhookOptions.InitialBackoff = genericoptions.ModeBlockingStrict, time.Millisecond
	}).Client(t).CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cell := w.Cells[ownerOf(t, w, namespace, "x")].Name()
	for _, stage := range []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseComplete} {
		if record := <-records; record.Stage != stage || record.Verb != "create" || stage == auditv1.StageResponseComplete && record.Annotations["cellplane.io/cell"] != cell {
			t.Errorf("got %+v, want %s", record, stage)
		}
	}
	refuses.Store(true)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "y"}}, metav1.CreateOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("a change whose record is refused: %v, want 500", err)
	}
	if _, err := w.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "y", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object exists: %v, want NotFound", err)
	}
}

// completed returns the record of the completed request with a verb.
func completed(t *testing.T, log, verb string) auditv1.Event {
	t.Helper()
	return recorded(t, log, verb, auditv1.StageResponseComplete)
}

// recorded returns the record of a stage of the request with a verb. That of the last stage may follow the response.
func recorded(t *testing.T, log, verb string, stage auditv1.Stage) (event auditv1.Event) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("a %s is recorded in stage %s", verb, stage), func(context.Context) (bool, error) {
		file, err := os.Open(log)
		if err != nil {
			return false, err
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			event = auditv1.Event{}
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				return false, err
			}
			if event.Verb == verb && event.Stage == stage {
				return true, nil
			}
		}
		return false, nil
	})
	return event
}

// TestStrictAudit checks that a policy that defeats the strict mode is refused.
func TestStrictAudit(t *testing.T) {
	for name, test := range map[string]struct {
		policy string
		ok     bool
	}{
		"keeps the stage":              {auditPolicy, true},
		"omits it everywhere":          {strings.Replace(auditPolicy, "rules:", "omitStages: [RequestReceived]\nrules:", 1), false},
		"omits it for changes":         {strings.Replace(auditPolicy, "deletecollection]", "deletecollection]\n  omitStages: [RequestReceived]", 1), false},
		"omits it for reads":           {strings.Replace(auditPolicy, "- level: None", "- level: Metadata\n  verbs: [get]\n  omitStages: [RequestReceived]", 1), true},
		"omits it for what it ignores": {strings.Replace(auditPolicy, "- level: None", "- level: None\n  omitStages: [RequestReceived]", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(file, []byte(test.policy), 0o600); err != nil {
				t.Fatal(err)
			}
			o := gateway.NewOptions()
			o.Audit.PolicyFile, o.Audit.LogOptions.Path = file, "audit.log"
			if err := gateway.CheckAudit(o); (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
