package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/pki"
)

// start starts a control plane for the test and sets its directory, binaries and ports.
func start(t *testing.T, config Config) (*ControlPlane, kubernetes.Interface) {
	t.Helper()
	binaries, err := kubebin.Ensure(t.Context(), func(string, int) {})
	if err != nil {
		t.Fatal(err)
	}
	ports, err := ChoosePorts()
	if err != nil {
		t.Fatal(err)
	}
	config.Dir, config.Binaries, config.Ports, config.NoFsync = t.TempDir(), binaries, ports, true
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	client, err := c.adminClient()
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

func TestMember(t *testing.T) {
	c, client := start(t, Config{Name: "member1", Role: Member, Nodes: 2})
	t.Run("reports its version", func(t *testing.T) { testVersion(t, client) })
	t.Run("runs pods", func(t *testing.T) { testRunsPods(t, client) })
	t.Run("delays readiness", func(t *testing.T) { testReadiness(t, client) })
	t.Run("refuses clients without a certificate", func(t *testing.T) { testNoAnonymousAccess(t, c) })
	t.Run("trusts only its own CA", func(t *testing.T) { testForeignCertificate(t, c) })
	t.Run("restarts killed processes", func(t *testing.T) { testHealing(t, c) })
}

func TestCollectorOfCells(t *testing.T) {
	t.Setenv("GOGC", "")
	c, client := start(t, Config{Name: "cell-a", Role: Cell})
	t.Run("metrics", func(t *testing.T) { testMonitoring(t, c) })
	metrics, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\ngo_gc_gogc_percent %d\n", collectInTestsAt); !strings.Contains(string(metrics), want) {
		t.Errorf("the API server of a cell does not report %q", strings.TrimSpace(want))
	}
}

func TestCollector(t *testing.T) {
	for _, test := range []struct {
		config Config
		chosen string
		want   []string
	}{
		{Config{Role: Cell}, "", []string{"GOGC=200"}},
		{Config{Role: Cell}, "50", nil},
		{Config{Role: Cell, NoFsync: true}, "", []string{"GOGC=400"}},
		{Config{Role: Hub}, "", nil},
		{Config{Role: Member}, "", nil},
		{Config{Role: Member, NoFsync: true}, "", []string{"GOGC=400"}},
		{Config{Role: Member, NoFsync: true}, "50", nil},
	} {
		t.Setenv("GOGC", test.chosen)
		c := &ControlPlane{config: test.config}
		if got := c.collector(); !slices.Equal(got, test.want) {
			t.Errorf("%+v with GOGC=%q: %v, want %v", test.config, test.chosen, got, test.want)
		}
	}
}

func testVersion(t *testing.T, client kubernetes.Interface) {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != kubebin.Version() {
		t.Errorf("the server reports %s, want %s", version.GitVersion, kubebin.Version())
	}
}

func testRunsPods(t *testing.T, client kubernetes.Interface) {
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "three replicas are available", func(ctx context.Context) (bool, error) {
		d, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 3, err
	})
}

// testReadiness runs a pod that is to become ready late, and then shortens its delay.
func testReadiness(t *testing.T, client kubernetes.Interface) {
	delayed := func(delay string) map[string]string {
		return map[string]string{"pod-ready.stage.kwok.x-k8s.io/delay": delay, "pod-ready.stage.kwok.x-k8s.io/jitter-delay": delay}
	}
	pods := client.CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "slow", Annotations: delayed("1h")},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod runs", func(ctx context.Context) (_ bool, err error) {
		pod, err = pods.Get(ctx, "slow", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	if podutils.IsPodReady(pod) || pod.Status.ContainerStatuses[0].Ready {
		t.Errorf("it is ready at once: %+v", pod.Status)
	}
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	pod.Annotations = delayed("10ms")
	if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is ready", func(ctx context.Context) (_ bool, err error) {
		pod, err = pods.Get(ctx, "slow", metav1.GetOptions{})
		return err == nil && podutils.IsPodReady(pod), err
	})
	if c := &pod.Status.ContainerStatuses[0]; !c.Ready || !c.State.Running.StartedAt.Equal(&started) {
		t.Errorf("its container is %+v, and started at %s", c, started)
	}
}

func testNoAnonymousAccess(t *testing.T, c *ControlPlane) {
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for url, want := range map[string]int{
		c.URL() + "/livez":         http.StatusOK,
		c.URL() + "/version":       http.StatusUnauthorized,
		c.URL() + "/api/v1/nodes":  http.StatusUnauthorized,
		c.URL() + "/openapi/v2":    http.StatusUnauthorized,
		c.URL() + "/metrics":       http.StatusUnauthorized,
		c.URL() + "/livez/../apis": http.StatusUnauthorized,
	} {
		response, err := anonymous.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("GET %s without a certificate: %d, want %d", url, response.StatusCode, want)
		}
	}
	for _, url := range []string{c.EtcdURL(), c.EtcdHTTPURL()} {
		connection, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = connection.Read(make([]byte, 1))
		connection.Close()
		if err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("%s without a certificate: %v", url, err)
		}
	}
}

func testForeignCertificate(t *testing.T, c *ControlPlane) {
	foreign, err := pki.EnsureCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := foreign.Ensure(t.TempDir(), "admin", pki.Leaf{CommonName: "admin", Organizations: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: c.URL(), TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile(), CertFile: pair.CertFile, KeyFile: pair.KeyFile}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("listing nodes with a foreign certificate: %v, want Unauthorized", err)
	}
}

func testHealing(t *testing.T, c *ControlPlane) {
	for _, p := range c.Processes() {
		before := p.Status(t.Context())
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, p.Name()+" is healthy again", func(ctx context.Context) (bool, error) {
			s := p.Status(ctx)
			return s.Healthy && s.PID != before.PID && s.Restarts == before.Restarts+1, nil
		})
	}
}

func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 60*time.Second, true, func(ctx context.Context) (bool, error) {
		done, err := condition(ctx)
		last = err
		return done, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v (%v)", what, err, last)
	}
}
