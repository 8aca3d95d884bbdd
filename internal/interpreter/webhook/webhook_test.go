package webhook

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fixture"
)

type (
	request  = configv1alpha1.ResourceInterpreterRequest
	response = configv1alpha1.ResourceInterpreterResponse
	exchange = configv1alpha1.ResourceInterpreterContext
)

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// answering returns a server that answers requests as the contract requires.
func answering(t *testing.T, answer func(*request) *response) *httptest.Server {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		var message exchange
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &message)
		}
		if err != nil || r.Method != http.MethodPost || message.Request == nil || message.APIVersion != "config.karmada.io/v1alpha1" || message.Kind != "ResourceInterpreterContext" {
			t.Errorf("bad request %s %s: %v", r.Method, body, err)
			return
		}
		message.Response = answer(message.Request)
		if message.Response.UID == "" {
			message.Response.UID = message.Request.UID
		}
		message.Request = nil
		_ = json.NewEncoder(w).Encode(message)
	})
}

func bundle(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func configure(server *httptest.Server, changes ...func(*configv1alpha1.ResourceInterpreterWebhook)) []*configv1alpha1.ResourceInterpreterWebhookConfiguration {
	url := server.URL + "/interpret"
	hook := configv1alpha1.ResourceInterpreterWebhook{
		Name:                       "hook.example.com",
		ClientConfig:               admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle(server)},
		InterpreterContextVersions: []string{"v1alpha1"},
		Rules: []configv1alpha1.RuleWithOperations{{
			Operations: []configv1alpha1.InterpreterOperation{"*"}, Rule: configv1alpha1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"*"}, Kinds: []string{"*"}},
		}},
	}
	for _, change := range changes {
		change(&hook)
	}
	return []*configv1alpha1.ResourceInterpreterWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: []configv1alpha1.ResourceInterpreterWebhook{hook}}}
}

func newSet(t *testing.T, server *httptest.Server, changes ...func(*configv1alpha1.ResourceInterpreterWebhook)) *Set {
	t.Helper()
	set, err := NewSet(configure(server, changes...), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const foo = `{apiVersion: example.com/v1, kind: Foo, metadata: {name: x, namespace: ns}, spec: {replicas: 1}}`

func TestOperations(t *testing.T) {
	patchType := configv1alpha1.PatchTypeJSONPatch
	healthy, three := true, int32(3)
	set := newSet(t, answering(t, func(r *request) *response {
		if r.Kind != (metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}) || r.Name != "x" || r.Namespace != "ns" || len(r.Object.Raw) == 0 {
			t.Errorf("got %+v", r)
		}
		answer := &response{Successful: true}
		switch r.Operation {
		case configv1alpha1.InterpreterOperationInterpretRollout:
			answer.Rollout = &configv1alpha1.WorkloadRollout{Replicas: 3, Pods: 2}
		case configv1alpha1.InterpreterOperationReviseRollout:
			if r.RolloutGrant == nil || *r.RolloutGrant != (configv1alpha1.RolloutGrant{Replicas: 7, MaxUnavailable: 1}) {
				t.Errorf("the grant is %v", r.RolloutGrant)
			}
			answer.Patch, answer.PatchType = []byte(`[{"op":"replace","path":"/spec/replicas","value":7}]`), &patchType
		case configv1alpha1.InterpreterOperationInterpretReplica:
			answer.Replicas = &three
			answer.ReplicaRequirements = &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{"cpu": resource.MustParse("2")}}
		case configv1alpha1.InterpreterOperationInterpretComponent:
			answer.Components = []workv1alpha2.Component{{Name: "a", Replicas: 1}}
		case configv1alpha1.InterpreterOperationReviseReplica:
			if r.DesiredReplicas == nil || *r.DesiredReplicas != 7 {
				t.Errorf("desired replicas are %v", r.DesiredReplicas)
			}
			answer.Patch, answer.PatchType = []byte(`[{"op":"replace","path":"/spec/replicas","value":7}]`), &patchType
		case configv1alpha1.InterpreterOperationRetain:
			if !strings.Contains(string(r.ObservedObject.Raw), "1.2.3.4") {
				t.Errorf("the observed object is %s", r.ObservedObject.Raw)
			}
			answer.Patch, answer.PatchType = []byte(`[{"op":"add","path":"/spec/ip","value":"1.2.3.4"}]`), &patchType
		case configv1alpha1.InterpreterOperationAggregateStatus:
			if len(r.AggregatedStatus) != 2 || r.AggregatedStatus[1].ClusterName != "m2" {
				t.Errorf("the statuses are %v", r.AggregatedStatus)
			}
			answer.Patch, answer.PatchType = []byte(`[{"op":"add","path":"/status","value":{"count":2}}]`), &patchType
		case configv1alpha1.InterpreterOperationInterpretStatus:
			answer.RawStatus = &runtime.RawExtension{Raw: []byte(`{"count":1}`)}
		case configv1alpha1.InterpreterOperationInterpretHealth:
			answer.Healthy = &healthy
		case configv1alpha1.InterpreterOperationInterpretDependency:
			answer.Dependencies = []configv1alpha1.DependentObjectReference{{APIVersion: "v1", Kind: "Secret", Name: "s"}}
		}
		return answer
	}), func(h *configv1alpha1.ResourceInterpreterWebhook) {
		rollouts := h.Rules[0]
		rollouts.Operations = []configv1alpha1.InterpreterOperation{"InterpretRollout", "ReviseRollout"}
		h.Rules = append(h.Rules, rollouts)
	})
	ctx, obj := context.Background(), fixture.Object(t, foo)
	unchanged := fixture.Frozen(t, obj)
	if n, r, err := set.Replicas(ctx, obj); n != 3 || err != nil || r.ResourceRequest.Cpu().String() != "2" || r.Namespace != "ns" {
		t.Errorf("replicas: %d, %v, %v", n, r, err)
	}
	if c, err := set.Components(ctx, obj); err != nil || len(c) != 1 || c[0].Name != "a" {
		t.Errorf("components: %v, %v", c, err)
	}
	revised, err := set.ReviseReplica(ctx, obj, 7)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, revised.Object["spec"], fixture.Value(t, `{replicas: 7}`))
	retained, err := set.Retain(ctx, obj, fixture.Object(t, `{apiVersion: example.com/v1, kind: Foo, spec: {ip: 1.2.3.4}}`))
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, retained.Object["spec"], fixture.Value(t, `{replicas: 1, ip: 1.2.3.4}`))
	aggregated, err := set.AggregateStatus(ctx, obj, fixture.Items(t, `{}`, ``))
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, aggregated.Object["status"], fixture.Value(t, `{count: 2}`))
	status, err := set.ReflectStatus(ctx, obj)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, fixture.Status(t, status), fixture.Value(t, `{count: 1}`))
	if h, err := set.Health(ctx, obj); h != workv1alpha2.ResourceHealthy || err != nil {
		t.Errorf("health: %v, %v", h, err)
	}
	if r, err := set.Rollout(ctx, obj); err != nil || r.Replicas != 3 || r.Pods != 2 {
		t.Errorf("rollout: %v, %v", r, err)
	}
	granted, err := set.ReviseRollout(ctx, obj, configv1alpha1.RolloutGrant{Replicas: 7, MaxUnavailable: 1})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, granted.Object["spec"], fixture.Value(t, `{replicas: 7}`))
	if d, err := set.Dependencies(ctx, obj); err != nil || len(d) != 1 || d[0].Name != "s" {
		t.Errorf("dependencies: %v, %v", d, err)
	}
	unchanged()
}

// TestBadAnswers checks that only valid answers are accepted.
func TestBadAnswers(t *testing.T) {
	other, jsonPatch := configv1alpha1.PatchType("Merge"), configv1alpha1.PatchTypeJSONPatch
	negative := int32(-1)
	patch := func(p string) func(*request) *response {
		return func(*request) *response {
			return &response{Successful: true, Patch: []byte(p), PatchType: &jsonPatch}
		}
	}
	answers := map[string]struct {
		answer func(*request) *response
		want   string
	}{
		"another uid": {func(*request) *response { return &response{Successful: true, UID: "other"} }, `the response is to request "other"`},
		"declined": {func(*request) *response {
			return &response{Status: &configv1alpha1.RequestStatus{Message: "too many", Code: 409}}
		}, "declined with code 409: too many"},
		"declined in silence": {func(*request) *response { return &response{} }, "declined without giving a reason"},
		"patch type":          {func(*request) *response { return &response{Successful: true, Patch: []byte("[]"), PatchType: &other} }, "not of type JSONPatch"},
		"no patch type":       {func(*request) *response { return &response{Successful: true, Patch: []byte("[]")} }, "not of type JSONPatch"},
		"no patch":            {patch(`{`), "applying its patch"},
		"patch to nowhere":    {patch(`[{"op":"replace","path":"/a/b/c","value":1}]`), "applying its patch"},
		"patch of identity":   {patch(`[{"op":"replace","path":"/metadata/namespace","value":"kube-system"}]`), "it changed metadata.namespace"},
		"patch of all":        {patch(`[{"op":"replace","path":"","value":[]}]`), "applying its patch"},
		"copying patch":       {patch(`[{"op":"copy","from":"/spec","path":"/spec/a"}]`), "copy is not supported"},
		"empty operation":     {patch(`[{}]`), "applying its patch"},
	}
	for name, tc := range answers {
		t.Run(name, func(t *testing.T) {
			_, err := newSet(t, answering(t, tc.answer)).ReviseReplica(context.Background(), fixture.Object(t, foo), 2)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "ResourceInterpreterWebhookConfiguration hooks, webhook hook.example.com") {
				t.Fatalf("got %v, want an error naming the webhook and saying %q", err, tc.want)
			}
		})
	}
	for name, answer := range map[string]func(*request) *response{
		"no replicas":       func(*request) *response { return &response{Successful: true} },
		"negative replicas": func(*request) *response { return &response{Successful: true, Replicas: &negative} },
	} {
		if _, _, err := newSet(t, answering(t, answer)).Replicas(context.Background(), fixture.Object(t, foo)); err == nil || !strings.Contains(err.Error(), "lacks a usable replicas") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := newSet(t, answering(t, func(*request) *response { return &response{Successful: true} })).Health(context.Background(), fixture.Object(t, foo)); err == nil {
		t.Error("an answer without a health was accepted")
	}
	servers := map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"error": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }, "answered 500"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusTemporaryRedirect)
		}, "answered 307"},
		"not JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, "decoding the response"},
		"another version": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"apiVersion":"config.karmada.io/v2","kind":"ResourceInterpreterContext"}`)
		}, `not a ResourceInterpreterContext`},
		"another kind": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kind":"Status"}`) }, `not a ResourceInterpreterContext`},
		"no response": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"apiVersion":"config.karmada.io/v1alpha1","kind":"ResourceInterpreterContext"}`)
		}, "holds no response"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			for range 5 << 10 {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		}, "more than 4194304 bytes"},
		"slow quantity": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"response":{"replicaRequirements":{"resourceRequest":{"cpu":"1e-1000000000"}}}}`)
		}, "exponent"},
		"slow component": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"response":{"components":[{"replicaRequirements":{"resourceRequest":{"cpu":"1e-1000000000"}}}]}}`)
		}, "exponent"},
	}
	for name, tc := range servers {
		t.Run(name, func(t *testing.T) {
			_, err := newSet(t, serve(t, tc.handler)).Health(context.Background(), fixture.Object(t, foo))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "webhook hook.example.com") {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestUntypedAnswer checks that a webhook may leave out the type of its answer, as those built with Karmada's SDK do.
func TestUntypedAnswer(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var message exchange
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			t.Error(err)
			return
		}
		_, _ = fmt.Fprintf(w, `{"response":{"uid":%q,"successful":true,"healthy":true}}`, message.Request.UID)
	})
	healthy, err := newSet(t, server).Health(context.Background(), fixture.Object(t, foo))
	if err != nil || healthy != workv1alpha2.ResourceHealthy {
		t.Errorf("got %v, %v", healthy, err)
	}
}

func TestTimeout(t *testing.T) {
	released := make(chan struct{})
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-released:
		case <-r.Context().Done():
		}
	})
	defer close(released)
	one := int32(1)
	set := newSet(t, server, func(h *configv1alpha1.ResourceInterpreterWebhook) { h.TimeoutSeconds = &one })
	start := time.Now()
	if _, err := set.Health(context.Background(), fixture.Object(t, foo)); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(start); took < time.Second || set.hooks[0].timeout != time.Second {
		t.Errorf("a timeout of one second is %s, and took %s", set.hooks[0].timeout, took)
	}
	if set := newSet(t, server); set.hooks[0].timeout != 10*time.Second {
		t.Errorf("the default timeout is %s", set.hooks[0].timeout)
	}
}

func TestMistakesInConfiguration(t *testing.T) {
	server := answering(t, func(*request) *response { healthy := true; return &response{Successful: true, Healthy: &healthy} })
	service := &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "svc"}
	for name, tc := range map[string]struct {
		change func(*configv1alpha1.ResourceInterpreterWebhook)
		want   string
	}{
		"plain http": {func(h *configv1alpha1.ResourceInterpreterWebhook) {
			u := "http://example.com/"
			h.ClientConfig.URL = &u
		}, "https://host/path"},
		"credentials": {func(h *configv1alpha1.ResourceInterpreterWebhook) {
			u := "https://a:b@example.com/"
			h.ClientConfig.URL = &u
		}, "https://host/path"},
		"query": {func(h *configv1alpha1.ResourceInterpreterWebhook) {
			u := "https://example.com/?a=b"
			h.ClientConfig.URL = &u
		}, "https://host/path"},
		"both":    {func(h *configv1alpha1.ResourceInterpreterWebhook) { h.ClientConfig.Service = service }, "exactly one of url and service"},
		"neither": {func(h *configv1alpha1.ResourceInterpreterWebhook) { h.ClientConfig.URL = nil }, "exactly one of url and service"},
		"service": {func(h *configv1alpha1.ResourceInterpreterWebhook) {
			h.ClientConfig.URL, h.ClientConfig.Service = nil, service
		}, "use clientConfig.url"},
		"version":      {func(h *configv1alpha1.ResourceInterpreterWebhook) { h.InterpreterContextVersions = []string{"v2"} }, "does not include v1alpha1"},
		"timeout":      {func(h *configv1alpha1.ResourceInterpreterWebhook) { n := int32(31); h.TimeoutSeconds = &n }, "not between 1 and 30"},
		"zero timeout": {func(h *configv1alpha1.ResourceInterpreterWebhook) { n := int32(0); h.TimeoutSeconds = &n }, "not between 1 and 30"},
		"certificate":  {func(h *configv1alpha1.ResourceInterpreterWebhook) { h.ClientConfig.CABundle = []byte("x") }, "no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := NewSet(configure(server, tc.change), nil, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if !set.Supports(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}, configv1alpha1.InterpreterOperationInterpretHealth) {
				t.Error("the operations of an invalid webhook are not supported")
			}
			if _, err := set.Health(context.Background(), fixture.Object(t, foo)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("calling it: %v", err)
			}
		})
	}
	t.Run("unknown authority", func(t *testing.T) {
		set := newSet(t, server, func(h *configv1alpha1.ResourceInterpreterWebhook) { h.ClientConfig.CABundle = nil })
		if _, err := set.Health(context.Background(), fixture.Object(t, foo)); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("a server with an untrusted certificate was accepted: %v", err)
		}
	})
}

func TestRules(t *testing.T) {
	server := answering(t, func(*request) *response { return &response{Successful: true} })
	rule := func(ops, groups, versions, kinds string) *Set {
		return newSet(t, server, func(h *configv1alpha1.ResourceInterpreterWebhook) {
			var operations []configv1alpha1.InterpreterOperation
			for _, op := range strings.Split(ops, ",") {
				operations = append(operations, configv1alpha1.InterpreterOperation(op))
			}
			h.Rules = []configv1alpha1.RuleWithOperations{{Operations: operations, Rule: configv1alpha1.Rule{
				APIGroups: strings.Split(groups, ","), APIVersions: strings.Split(versions, ","), Kinds: strings.Split(kinds, ","),
			}}}
		})
	}
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	for _, tc := range []struct {
		set  *Set
		gvk  schema.GroupVersionKind
		op   configv1alpha1.InterpreterOperation
		want bool
	}{
		{rule("*", "*", "*", "*"), pod, "Retain", true},
		{rule("Retain", "", "v1", "Pod"), pod, "Retain", true},
		{rule("Retain", "", "v1", "Pod"), pod, "InterpretHealth", false},
		{rule("Retain,InterpretHealth", "", "v1", "Pod"), pod, "InterpretHealth", true},
		{rule("*", "", "v1", "Pod"), deployment, "Retain", false},
		{rule("*", "apps", "v1beta1", "*"), deployment, "Retain", false},
		{rule("*", "batch,apps", "*", "Deployment,Job"), deployment, "Retain", true},
		{rule("*", "apps", "v1", "StatefulSet"), deployment, "Retain", false},
		{rule("*", "*", "*", "*"), pod, "InterpretRollout", false},
		{rule("InterpretRollout,ReviseRollout", "*", "*", "*"), pod, "ReviseRollout", true},
		{nil, deployment, "Retain", false},
	} {
		if got := tc.set.Supports(tc.gvk, tc.op); got != tc.want {
			t.Errorf("%s of %s: %v", tc.op, tc.gvk, got)
		}
	}
}

func TestServicesAndConnections(t *testing.T) {
	healthy := true
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/interpret" {
			t.Errorf("got a request for %s", r.URL.Path)
		}
		var message exchange
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			t.Error(err)
			return
		}
		message.Response = &response{UID: message.Request.UID, Successful: true, Healthy: &healthy}
		_ = json.NewEncoder(w).Encode(message)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	port, path := int32(8443), "/interpret"
	configuration := configure(server, func(h *configv1alpha1.ResourceInterpreterWebhook) {
		h.ClientConfig.URL = nil
		h.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "svc", Port: &port, Path: &path}
	})
	resolved := 0
	resolve := func(_ context.Context, namespace, name string, port int32) (string, error) {
		resolved++
		if namespace != "ns" || name != "svc" || port != 8443 {
			t.Errorf("asked to resolve %s/%s:%d", namespace, name, port)
		}
		return server.Listener.Addr().String(), nil
	}
	first, err := NewSet(configuration, resolve, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The certificate is not for svc.ns.svc: the client connects, and then refuses the certificate.
	if _, err := first.Health(context.Background(), fixture.Object(t, foo)); err == nil || !strings.Contains(err.Error(), "svc.ns.svc") || resolved != 1 {
		t.Fatalf("got %v after resolving %d times", err, resolved)
	}
	byURL := configure(server)
	second, err := NewSet(byURL, resolve, first)
	if err != nil {
		t.Fatal(err)
	}
	before := connections.Load()
	for range 5 {
		if _, err := second.Health(context.Background(), fixture.Object(t, foo)); err != nil {
			t.Fatal(err)
		}
	}
	third, err := NewSet(byURL, resolve, second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := third.Health(context.Background(), fixture.Object(t, foo)); err != nil {
		t.Fatal(err)
	}
	if made := connections.Load() - before; made != 1 {
		t.Errorf("six requests through two snapshots took %d connections", made)
	}
}
