package registration_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/internal/registration"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testAnonymous reads the one object that needs no authentication, and nothing else.
func (f *fixture) testAnonymous(t *testing.T) {
	anybody, ctx := clientFor(t, f.anonymous()), t.Context()
	public := anybody.CoreV1().ConfigMaps(metav1.NamespacePublic)
	testenv.Eventually(t, "anybody may read cluster-info", func(ctx context.Context) (bool, error) {
		_, err := public.Get(ctx, "cluster-info", metav1.GetOptions{})
		return err == nil, err
	})
	for what, attempt := range map[string]func() error{
		"changes it": func() error {
			_, err := public.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"}}, metav1.UpdateOptions{})
			return err
		},
		"patches it": func() error {
			_, err := public.Patch(ctx, "cluster-info", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"deletes it":    func() error { return public.Delete(ctx, "cluster-info", metav1.DeleteOptions{}) },
		"reads another": func() error { _, err := public.Get(ctx, "other", metav1.GetOptions{}); return err },
		"lists":         func() error { _, err := public.List(ctx, metav1.ListOptions{}); return err },
		"reads one of that name elsewhere": func() error {
			_, err := anybody.CoreV1().ConfigMaps("default").Get(ctx, "cluster-info", metav1.GetOptions{})
			return err
		},
	} {
		if err := attempt(); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
			t.Errorf("anybody %s: %v, want 401 or 403", what, err)
		}
	}
}

// testDiscovery verifies gateways: the right one, with a wrong hash, and servers that pretend to be it.
func (f *fixture) testDiscovery(t *testing.T) {
	token := f.token(t)
	valid := f.options("", token).Discovery
	gateway, err := valid.Discover(t.Context())
	check(t, err)
	if gateway.Server != f.gateway.URL() {
		t.Errorf("the gateway is %+v", gateway)
	}
	genuine, err := f.hub.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", metav1.GetOptions{})
	check(t, err)
	replaying := imposter(t, func([]byte) *corev1.ConfigMap { return genuine })
	forging := imposter(t, func(own []byte) *corev1.ConfigMap {
		forged := genuine.DeepCopy()
		forged.Data["kubeconfig"] = "clusters: [{name: '', cluster: {server: 'https://127.0.0.1', certificate-authority-data: " + base64.StdEncoding.EncodeToString(own) + "}}]"
		return forged
	})
	for what, test := range map[string]struct {
		change func(*registration.Discovery)
		want   string
	}{
		"a wrong hash":           {func(d *registration.Discovery) { d.CAHashes = []string{"sha256:" + strings.Repeat("0", 64)} }, "no CA certificate of the gateway has the hash"},
		"no hash":                {func(d *registration.Discovery) { d.CAHashes = nil }, "--discovery-token-ca-cert-hash is missing"},
		"a hash of another form": {func(d *registration.Discovery) { d.CAHashes = []string{"sha1:00"} }, "must be sha256:"},
		"a server that repeats the answer of the gateway": {func(d *registration.Discovery) { d.Endpoint = replaying }, "certificate"},
		"a server that repeats it, without a hash":        {func(d *registration.Discovery) { d.Endpoint, d.CAHashes, d.SkipCAVerification = replaying, nil, true }, "certificate"},
		"a server that changes the answer":                {func(d *registration.Discovery) { d.Endpoint = forging }, "the signature with token"},
		"a server that changes it, without a hash":        {func(d *registration.Discovery) { d.Endpoint, d.CAHashes, d.SkipCAVerification = forging, nil, true }, "the signature with token"},
		"no https": {func(d *registration.Discovery) { d.Endpoint = "http://127.0.0.1:1" }, "must be host:port or an https URL"},
	} {
		changed := valid
		changed.Timeout = time.Second
		test.change(&changed)
		if _, err := changed.Discover(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
	trusting := valid
	trusting.CAHashes, trusting.SkipCAVerification = nil, true
	if _, err := trusting.Discover(t.Context()); err != nil {
		t.Errorf("without a hash, on request: %v", err)
	}
}

// imposter is a server that answers every request with a ConfigMap, which it makes with its own CA.
func imposter(t *testing.T, answer func(ca []byte) *corev1.ConfigMap) string {
	t.Helper()
	var text []byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	info := answer(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	info.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	var err error
	text, err = json.Marshal(info)
	check(t, err)
	return server.URL
}
