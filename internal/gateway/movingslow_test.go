package gateway_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/testenv"
)

// brake is an admission webhook that holds the first creation of each ConfigMap, and the first eviction of each pod, until it is released. API servers ask it after the fence.
type brake struct {
	mu       sync.Mutex
	held     map[string]bool
	released chan struct{}
	release  func() // may be called more than once
}

func (b *brake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := review.Request.Name
	b.mu.Lock()
	first := name != brakeProbe && !b.held[name]
	b.held[name] = true
	b.mu.Unlock()
	if first {
		<-b.released
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: name != brakeProbe}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// brakeProbe is refused, which shows that the webhook is called.
const brakeProbe = "probe-of-the-brake"

// startBrake installs the webhook in both cells.
func (f *movingFixture) startBrake() *brake {
	f.t.Helper()
	b := &brake{held: map[string]bool{}, released: make(chan struct{})}
	b.release = sync.OnceFunc(func() { close(b.released) })
	server := httptest.NewTLSServer(b)
	f.t.Cleanup(server.Close)
	f.t.Cleanup(b.release)
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "brake"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "brake.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](30),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: ptr.To(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.namespace}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps", "pods/eviction"}},
		}},
	}}}
	for _, cell := range f.direct {
		hooks := cell.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		_, err := hooks.Create(f.t.Context(), hook, metav1.CreateOptions{})
		must(f.t, err)
		f.t.Cleanup(func() { _ = hooks.Delete(context.WithoutCancel(f.t.Context()), hook.Name, metav1.DeleteOptions{}) })
		testenv.Eventually(f.t, "the webhook is called", func(ctx context.Context) (bool, error) {
			_, err := cell.CoreV1().ConfigMaps(f.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: brakeProbe}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return apierrors.IsForbidden(err) || apierrors.IsBadRequest(err), err
		})
	}
	return b
}

// waitFor waits until the webhook holds the creation of an object.
func (b *brake) waitFor(f *movingFixture, name string) {
	f.t.Helper()
	testenv.Eventually(f.t, "the creation of "+name+" is held", func(context.Context) (bool, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.held[name], nil
	})
}

// slowCreation is a creation that a cell has admitted before a topology is in force, and stores after that.
type slowCreation struct {
	name   string
	object *corev1.ConfigMap
	err    error
	done   chan struct{}
}

func (f *movingFixture) createSlowly(b *brake, name string, options metav1.CreateOptions) *slowCreation {
	f.t.Helper()
	creation := &slowCreation{name: name, done: make(chan struct{})}
	go func() {
		defer close(creation.done)
		creation.object, creation.err = f.maps().Create(f.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, options)
	}()
	b.waitFor(f, name)
	return creation
}

func (f *movingFixture) maps() corev1client.ConfigMapInterface {
	return f.clients[currentGateway].CoreV1().ConfigMaps(f.namespace)
}

// testSlowCreations lets cell-a leave while cells create objects slowly. Clients are told what became of each.
func (f *movingFixture) testSlowCreations() {
	b := f.startBrake()
	stays := f.createSlowly(b, f.movingName("slow-in-cell-b"), metav1.CreateOptions{})
	moves := f.createSlowly(b, f.stayingName("slow-moving"), metav1.CreateOptions{})
	loses := f.createSlowly(b, f.stayingName("slow-second"), metav1.CreateOptions{})
	tried := f.createSlowly(b, f.stayingName("slow-dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	pod := f.stayingName("slow-evicted")
	f.createPod(pod)
	evicted := make(chan error, 1)
	go func() { evicted <- f.evict(pod) }()
	b.waitFor(f, pod)
	f.raiseFences(4)
	f.deliver(currentGateway, f.leavingTopology())
	// Cell-b stores another object of this name before cell-a does.
	_, err := f.maps().Create(f.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: loses.name}}, metav1.CreateOptions{})
	must(f.t, err)
	b.release()

	if err := <-evicted; err != nil || f.podIn(oldCell, pod) != nil {
		f.t.Errorf("the eviction that cell-a carried out: %v", err)
	}
	f.finishSlow(moves)
	f.discardSlow(loses)
	for _, creation := range []*slowCreation{stays, tried} {
		<-creation.done
		if creation.err != nil {
			f.t.Errorf("the creation of %s: %v", creation.name, creation.err)
		}
	}
	if !f.hasMap(newCell, stays.name) || f.hasMap(oldCell, tried.name) || f.hasMap(newCell, tried.name) {
		f.t.Error("an object is not where it belongs, or a dry run was stored")
	}
}

// finishSlow moves an object that was stored late. Its creation is acknowledged, with a version that can be used.
func (f *movingFixture) finishSlow(creation *slowCreation) {
	f.t.Helper()
	f.mapStored(creation.name).move()
	<-creation.done
	must(f.t, creation.err)
	creation.object.Data = map[string]string{"changed": "yes"}
	updated, err := f.maps().Update(f.t.Context(), creation.object, metav1.UpdateOptions{})
	must(f.t, err)
	if updated.UID != creation.object.UID {
		f.t.Errorf("the object has the UID %s, and the answer had %s", updated.UID, creation.object.UID)
	}
}

// discardSlow discards an object that was stored late, as the mover does if the new cell has another one. Its creation is refused.
func (f *movingFixture) discardSlow(creation *slowCreation) {
	f.t.Helper()
	f.mapStored(creation.name).commit()
	<-creation.done
	if !apierrors.IsAlreadyExists(creation.err) {
		f.t.Errorf("the creation of an object that was discarded: %v, want that another one exists", creation.err)
	}
}

// mapStored waits until cell-a has stored a ConfigMap.
func (f *movingFixture) mapStored(name string) *movingObject {
	f.t.Helper()
	testenv.Eventually(f.t, "cell-a has stored "+name, func(context.Context) (bool, error) { return f.hasMap(oldCell, name), nil })
	return &movingObject{f: f, key: "configmaps/" + f.namespace + "/" + name}
}

func (f *movingFixture) hasMap(cell int, name string) bool {
	f.t.Helper()
	_, err := f.direct[cell].CoreV1().ConfigMaps(f.namespace).Get(f.t.Context(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		must(f.t, err)
	}
	return err == nil
}
