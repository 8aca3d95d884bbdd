package protection

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/testenv"
)

// server is a real API server behind a Guard. A function is called between the check and the change.
type server struct {
	client  kubernetes.Interface
	proxy   http.Handler
	guard   *Guard
	between func() // is called before each change that is not a dry run
	stale   []byte // is read once instead of the object
}

// ServeHTTP is the handler behind the guard.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isDryRun(r) && s.between != nil {
		s.between()
	}
	s.proxy.ServeHTTP(w, r)
}

// Get implements Objects.
func (s *server) Get(ctx context.Context, info *request.RequestInfo) ([]byte, error) {
	if stale := s.stale; stale != nil {
		s.stale = nil
		return stale, nil
	}
	path := strings.TrimSuffix(info.Path, "/"+info.Subresource)
	if info.Resource == "pods" { // those of Bindings are not in the path
		path = "/api/v1/namespaces/" + info.Namespace + "/pods/" + info.Name
	}
	return s.client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
}

// Find implements Objects.
func (s *server) Find(context.Context, kinds.Resource, string, url.Values, int) ([][]byte, error) {
	return nil, nil
}

// Resource implements Objects.
func (s *server) Resource(_ context.Context, gvr schema.GroupVersionResource) (kinds.Resource, bool) {
	return kinds.Resource{GroupVersionResource: gvr, Kind: "Deployment", Namespaced: true, Verbs: []string{"delete", "deletecollection", "list"}}, true
}

// Namespaced implements Objects.
func (s *server) Namespaced(context.Context) ([]kinds.Resource, error) { return nil, nil }

// Replicas implements Objects.
func (s *server) Replicas(_ context.Context, gvr schema.GroupVersionResource) (Replicas, error) {
	return Replicas{Paths: [][]string{SpecReplicas}, Scaled: SpecReplicas, Version: gvr.Version}, nil
}

func startServer(t *testing.T, policies ...*cellplanev1alpha1.ProtectionPolicy) *server {
	t.Helper()
	config := testenv.SharedAPIServer(t).RESTConfig()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{proxy: &httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}}
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	known := &Policies{namespaces: corelisters.NewNamespaceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))}
	known.publish(policies)
	s.guard = &Guard{Next: s, Policies: known, Objects: s, Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})}
	return s
}

// handler is the guard with that of templates behind it.
func (s *server) handler() http.Handler {
	guard := *s.guard
	guard.Next = s.guard.Templates(s)
	return &guard
}

// do sends a request through the guard.
func (s *server) do(t *testing.T, verb, method, path, contentType string, body []byte) (int, string) {
	t.Helper()
	return s.doAs(t, "someone", verb, method, path, contentType, body)
}

func (s *server) doAs(t *testing.T, caller, verb, method, path, contentType string, body []byte) (int, string) {
	t.Helper()
	resolver := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	info, err := resolver.NewRequestInfo(r)
	if err != nil || info.Verb != verb {
		t.Fatalf("%s resolves to %v, %v", path, info, err)
	}
	ctx := request.WithUser(request.WithRequestInfo(t.Context(), info), &user.DefaultInfo{Name: caller})
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r.WithContext(ctx))
	answer, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(answer)
}

func (s *server) pod(t *testing.T, namespace string) *corev1.Pod {
	t.Helper()
	created, err := s.client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

const (
	asOther     = `{"metadata":{"labels":{"other":"change"}}}`
	asProtected = `{"metadata":{"labels":{"resourcetemplate.karmada.io/deletion-protected":"Always"}}}`
)

func (s *server) patchPod(t *testing.T, p *corev1.Pod, patch string) *corev1.Pod {
	t.Helper()
	patched, err := s.client.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return patched
}

// podDeletions are the ways to delete a pod, with a resourceVersion of the client unless that is "".
func podDeletions(t *testing.T) map[string]func(s *server, p *corev1.Pod, version string) (int, string) {
	t.Helper()
	send := func(verb, method, suffix, contentType string, encode func(name string, options *metav1.DeleteOptions) ([]byte, error)) func(*server, *corev1.Pod, string) (int, string) {
		return func(s *server, p *corev1.Pod, version string) (int, string) {
			options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, GracePeriodSeconds: ptr.To[int64](0)}
			if version != "" {
				options.Preconditions = &metav1.Preconditions{ResourceVersion: &version}
			}
			body, err := encode(p.Name, options)
			if err != nil {
				t.Fatal(err)
			}
			return s.do(t, verb, method, "/api/v1/namespaces/"+p.Namespace+"/pods/"+p.Name+suffix, contentType, body)
		}
	}
	eviction := func(name string, options *metav1.DeleteOptions) *policyv1.Eviction {
		return &policyv1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"}, ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: options}
	}
	return map[string]func(*server, *corev1.Pod, string) (int, string){
		"delete in JSON": send("delete", http.MethodDelete, "", "application/json", func(_ string, o *metav1.DeleteOptions) ([]byte, error) { return json.Marshal(o) }),
		"delete in protobuf": send("delete", http.MethodDelete, "", runtime.ContentTypeProtobuf, func(_ string, o *metav1.DeleteOptions) ([]byte, error) {
			return runtime.Encode(protobufEncoder(t), o)
		}),
		"evict in JSON": send("create", http.MethodPost, "/eviction", "application/json", func(name string, o *metav1.DeleteOptions) ([]byte, error) {
			return json.Marshal(eviction(name, o))
		}),
		"evict in protobuf": send("create", http.MethodPost, "/eviction", runtime.ContentTypeProtobuf, func(name string, o *metav1.DeleteOptions) ([]byte, error) {
			return runtime.Encode(protobufEncoder(t), eviction(name, o))
		}),
	}
}

// TestPodProtectedMeanwhile protects a pod between the check of its deletion or eviction and the deletion.
func TestPodProtectedMeanwhile(t *testing.T) {
	s := startServer(t)
	namespace := newNamespace(t, s.client)
	gone := func(p *corev1.Pod) bool {
		_, err := s.client.CoreV1().Pods(namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	for name, remove := range podDeletions(t) {
		t.Run(name, func(t *testing.T) {
			for _, protects := range []bool{true, false} {
				p := s.pod(t, namespace)
				patch, changed := asOther, false
				if protects {
					patch = asProtected
				}
				s.between = func() {
					if !changed {
						changed = true
						s.patchPod(t, p, patch)
					}
				}
				code, answer := remove(s, p, "")
				s.between = nil
				if protects != (code == http.StatusForbidden) || protects == gone(p) {
					t.Errorf("protected meanwhile %v: %d %s; it is gone: %v", protects, code, answer, gone(p))
				}
			}
			p := s.pod(t, namespace)
			s.patchPod(t, p, asOther)
			if code, answer := remove(s, p, p.ResourceVersion); code != http.StatusConflict || gone(p) {
				t.Errorf("with an old version: %d %s, want a conflict", code, answer)
			}
			// The version that the client names is protected, and an earlier one is checked.
			p = s.pod(t, namespace)
			before, err := s.client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name(p.Name).SetHeader("Accept", "application/json").DoRaw(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			later := s.patchPod(t, p, asProtected)
			s.stale = before
			if code, answer := remove(s, p, later.ResourceVersion); code != http.StatusConflict || gone(p) {
				t.Errorf("with a version that was not checked: %d %s, want a conflict; it is gone: %v", code, answer, gone(p))
			}
			p = s.pod(t, namespace)
			if code, answer := remove(s, p, p.ResourceVersion); code >= 300 || !gone(p) {
				t.Errorf("with the current version: %d %s; it is gone: %v", code, answer, gone(p))
			}
		})
	}
	p := s.pod(t, namespace)
	if code, answer := s.do(t, "delete", http.MethodDelete, "/api/v1/namespaces/"+namespace+"/pods/"+p.Name+"?uid=another", "", nil); code != http.StatusConflict || gone(p) {
		t.Errorf("with another UID in the query: %d %s, want a conflict", code, answer)
	}
}

func (s *server) deployment(t *testing.T, namespace string, replicas int32) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": "x"}
	created, err := s.client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "d-"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// once returns a function that patches an object the first time.
func (s *server) once(t *testing.T, d *appsv1.Deployment, patch string) func() {
	done := false
	return func() {
		if done {
			return
		}
		done = true
		if _, err := s.client.AppsV1().Deployments(d.Namespace).Patch(t.Context(), d.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProtectedMeanwhile protects an object between the check of its deletion and the deletion.
func TestProtectedMeanwhile(t *testing.T) {
	s := startServer(t)
	namespace := newNamespace(t, s.client)
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	inJSON, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	inProtobuf, err := runtime.Encode(protobufEncoder(t), &options)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, query, contentType string
		body                     []byte
	}{
		{"nothing", "", "", nil},
		{"options in the query", "?propagationPolicy=Background", "", nil},
		{"JSON", "", "application/json", inJSON},
		{"YAML", "", "application/yaml", []byte("propagationPolicy: Background\n")},
		{"protobuf", "", runtime.ContentTypeProtobuf, inProtobuf},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, protects := range []bool{true, false} {
				d := s.deployment(t, namespace, 3)
				path := "/apis/apps/v1/namespaces/" + namespace + "/deployments/" + d.Name
				patch := `{"metadata":{"labels":{"other":"change"}}}`
				if protects {
					patch = `{"metadata":{"labels":{"resourcetemplate.karmada.io/deletion-protected":"Always"}}}`
				}
				s.between = s.once(t, d, patch)
				code, answer := s.do(t, "delete", http.MethodDelete, path+test.query, test.contentType, test.body)
				_, err := s.client.AppsV1().Deployments(namespace).Get(t.Context(), d.Name, metav1.GetOptions{})
				switch {
				case protects && (code != http.StatusForbidden || err != nil):
					t.Errorf("an object protected meanwhile: %d %s; it is there: %v", code, answer, err)
				case !protects && (code != http.StatusOK || !apierrors.IsNotFound(err)):
					t.Errorf("an object changed meanwhile: %d %s; it is gone: %v", code, answer, err)
				}
			}
		})
	}
	t.Run("of another version", func(t *testing.T) {
		d := s.deployment(t, namespace, 3)
		s.between = nil
		code, answer := s.do(t, "delete", http.MethodDelete, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+d.Name, "application/json", []byte(`{"preconditions":{"resourceVersion":"1"}}`))
		if code != http.StatusConflict {
			t.Errorf("got %d %s, want the client's own conflict", code, answer)
		}
	})
}

// TestCollectionProtectedMeanwhile protects an object of a collection between the check of its deletion and the deletion: by a label of
// the object, and by a new policy.
func TestCollectionProtectedMeanwhile(t *testing.T) {
	keeps := func(name string, labels map[string]string) *cellplanev1alpha1.ProtectionPolicy {
		return &cellplanev1alpha1.ProtectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cellplanev1alpha1.ProtectionPolicySpec{
			ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"apps"}, Kinds: []string{"Deployment"}, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}},
			Deletion:          &cellplanev1alpha1.DeletionProtection{},
		}}
	}
	precious := keeps("precious", map[string]string{"precious": "yes"})
	before := []*cellplanev1alpha1.ProtectionPolicy{precious}
	for _, query := range []string{"", "?limit=10"} {
		for _, test := range []struct {
			name    string
			before  []*cellplanev1alpha1.ProtectionPolicy
			happens func(*testing.T, *server, *appsv1.Deployment)
			keeps   bool
		}{
			{"nothing happens", before, func(*testing.T, *server, *appsv1.Deployment) {}, false},
			{"an object changes", before, func(t *testing.T, s *server, d *appsv1.Deployment) {
				s.once(t, d, `{"metadata":{"labels":{"other":"change"}}}`)()
			}, false},
			{"an object is selected", before, func(t *testing.T, s *server, d *appsv1.Deployment) {
				s.once(t, d, `{"metadata":{"labels":{"precious":"yes"}}}`)()
			}, true},
			{"an object gets the label", before, func(t *testing.T, s *server, d *appsv1.Deployment) {
				s.once(t, d, `{"metadata":{"labels":{"resourcetemplate.karmada.io/deletion-protected":"Always"}}}`)()
			}, true},
			{"a policy is made", before, func(_ *testing.T, s *server, d *appsv1.Deployment) {
				s.guard.Policies.publish([]*cellplanev1alpha1.ProtectionPolicy{precious, keeps("new", map[string]string{"one": d.Labels["one"]})})
			}, true},
			{"the first policy is made", nil, func(_ *testing.T, s *server, d *appsv1.Deployment) {
				s.guard.Policies.publish([]*cellplanev1alpha1.ProtectionPolicy{keeps("first", map[string]string{"one": d.Labels["one"]})})
			}, true},
			{"an object gets the label where there is no policy", nil, func(t *testing.T, s *server, d *appsv1.Deployment) {
				s.once(t, d, `{"metadata":{"labels":{"resourcetemplate.karmada.io/deletion-protected":"Always"}}}`)()
			}, true},
		} {
			t.Run(test.name+query, func(t *testing.T) {
				s := startServer(t, test.before...)
				namespace := newNamespace(t, s.client)
				for range 5 {
					s.deployment(t, namespace, 1)
				}
				d := s.deployment(t, namespace, 1)
				s.once(t, d, `{"metadata":{"labels":{"one":"this"}}}`)()
				d.Labels = map[string]string{"one": "this"}
				var first sync.Once
				s.between = func() { first.Do(func() { test.happens(t, s, d) }) } // when the collection is listed
				code, answer := s.do(t, "deletecollection", http.MethodDelete, "/apis/apps/v1/namespaces/"+namespace+"/deployments"+query, "", nil)
				list, err := s.client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				there := slices.ContainsFunc(list.Items, func(o appsv1.Deployment) bool { return o.Name == d.Name })
				switch {
				case test.keeps && (code != http.StatusForbidden || !there):
					t.Errorf("%d %s; the object is there: %v", code, answer, there)
				case !test.keeps && (code != http.StatusOK || len(list.Items) > 0):
					t.Errorf("%d %s; %d objects are there", code, answer, len(list.Items))
				}
			})
		}
	}
}

// TestScaledMeanwhile scales an object up between the check of a change and the change: the decrease is larger then.
func TestScaledMeanwhile(t *testing.T) {
	half := intstr.FromString("50%")
	s := startServer(t, &cellplanev1alpha1.ProtectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "half"}, Spec: cellplanev1alpha1.ProtectionPolicySpec{
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"apps"}, Kinds: []string{"Deployment"}}},
		ScaleDown:         &cellplanev1alpha1.ScaleDownProtection{MaxDecrease: &half},
	}})
	namespace := newNamespace(t, s.client)
	replaced := func(d *appsv1.Deployment, encode func(runtime.Object) ([]byte, error)) []byte {
		d = d.DeepCopy()
		d.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
		d.ResourceVersion, d.Spec.Replicas = "", ptr.To[int32](6)
		body, err := encode(d)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	for _, test := range []struct {
		name, verb, method, path, contentType string
		body                                  func(*appsv1.Deployment) []byte
	}{
		{"merge patch", "patch", http.MethodPatch, "", string(types.MergePatchType), fixed(`{"spec":{"replicas":6}}`)},
		{"strategic merge patch", "patch", http.MethodPatch, "", string(types.StrategicMergePatchType), fixed(`{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":6}}`)},
		{"JSON patch", "patch", http.MethodPatch, "", string(types.JSONPatchType), fixed(`[{"op":"replace","path":"/spec/replicas","value":6}]`)},
		{"apply", "patch", http.MethodPatch, "?fieldManager=x&force=true", string(types.ApplyYAMLPatchType), func(d *appsv1.Deployment) []byte {
			return fmt.Appendf(nil, "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: %s\nspec:\n  replicas: 6\n", d.Name)
		}},
		{"scale", "patch", http.MethodPatch, "/scale", string(types.MergePatchType), fixed(`{"spec":{"replicas":6}}`)},
		{"replacement in JSON", "update", http.MethodPut, "", "application/json", func(d *appsv1.Deployment) []byte {
			return replaced(d, func(o runtime.Object) ([]byte, error) { return json.Marshal(o) })
		}},
		{"replacement in protobuf", "update", http.MethodPut, "", runtime.ContentTypeProtobuf, func(d *appsv1.Deployment) []byte {
			return replaced(d, func(o runtime.Object) ([]byte, error) { return runtime.Encode(protobufEncoder(t), o) })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, raised := range []bool{true, false} {
				d := s.deployment(t, namespace, 10)
				patch := `{"metadata":{"annotations":{"other":"change"}}}`
				if raised {
					patch = `{"spec":{"replicas":100}}`
				}
				s.between = s.once(t, d, patch)
				code, answer := s.do(t, test.verb, test.method, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+d.Name+test.path, test.contentType, test.body(d))
				now, err := s.client.AppsV1().Deployments(namespace).Get(t.Context(), d.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case raised && (code != http.StatusForbidden || *now.Spec.Replicas != 100):
					t.Errorf("from 100 to 6 replicas: %d %s; there are %d", code, answer, *now.Spec.Replicas)
				case !raised && (code != http.StatusOK || *now.Spec.Replicas != 6):
					t.Errorf("from 10 to 6 replicas: %d %s; there are %d", code, answer, *now.Spec.Replicas)
				}
			}
		})
	}
}

func newNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	created, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "protection-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created.Name
}

func fixed(body string) func(*appsv1.Deployment) []byte {
	return func(*appsv1.Deployment) []byte { return []byte(body) }
}

func protobufEncoder(t *testing.T) runtime.Encoder {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no protobuf serializer")
	}
	return scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersions{appsv1.SchemeGroupVersion, corev1.SchemeGroupVersion, policyv1.SchemeGroupVersion})
}
