package node

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
	"github.com/cellplane/cellplane/internal/testenv/realnode"
)

// federationNamespace is the namespace of the federation.
const federationNamespace = "cellplane-system"

// values are those of a federation that fits a node with two processors, and in which one pod of each part of cell-a and of the gateways can be missed.
const values = `
images: {prefix: ` + imagePrefix + `, cellplane: {tag: ` + imageTag + `}}
hub:
  etcd: &etcd {replicas: 1, storage: 10Mi, resources: &little {requests: {cpu: 10m, memory: 32Mi}}, extraArgs: [--unsafe-no-fsync]}
  apiServer: {replicas: 1, resources: *little}
  engine: {replicas: 1, resources: *little}
  controllerManager: {replicas: 1, resources: *little}
cells:
- name: cell-a
  etcd: {replicas: 3}
  engine: {replicas: 2}
- name: cell-b
cellDefaults:
  etcd: *etcd
  apiServer: {replicas: 1, resources: *little}
  engine: {replicas: 1, resources: *little}
hubManager: {replicas: 1, storage: 10Mi, resources: *little}
gateway: {replicas: 2, resources: *little}
clusterGateway: {replicas: 1, resources: *little}
federationControllers: {replicas: 1, resources: *little}
`

// busyLease is for a machine that runs other tests, too: gateways would find that they are cut off, and clients such as kubectl repeat only some of the writes
// that they refuse then.
const busyLease = "gateway.extraArgs[0]=--writer-lease=1m"

var full = flag.Bool("node.full", false, "also delete pods and change cells under load")

// federation is an installation on the node.
type federation struct {
	node *realnode.Node
	// meta is the kubeconfig of the node's cluster.
	meta kubectltest.Kubectl
	// kubeconfig is that of an administrator at the Service of the gateways, and config and client use it.
	kubeconfig kubectltest.Kubectl
	config     *rest.Config
	client     kubernetes.Interface
	// cells are clients of the API servers of cells, past the gateways.
	cells map[string]kubernetes.Interface
}

// installFederation installs the chart with all its images.
func installFederation(t *testing.T) *federation {
	t.Helper()
	f := &federation{node: startNode(t)}
	importImages(t, f.node)
	f.meta = kubectl(t, f.node.Config)
	f.install(t)
	f.connect(t)
	return f
}

// install runs `cellplane install` with more values than those of all tests.
func (f *federation) install(t *testing.T, more ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"install", "--kubeconfig=" + string(f.meta), "--timeout=15m", "--values=" + file}
	if !*full {
		more = append(more, busyLease)
	}
	for _, value := range more {
		args = append(args, "--set="+value)
	}
	began := time.Now()
	out, err := cellplane(t, args...)
	t.Logf("after %.0fs:\n%s", time.Since(began).Seconds(), out)
	if err != nil {
		t.Fatalf("%v\n%s", err, describe(f.node.Client, federationNamespace))
	}
}

// cellplane runs a command of the program.
func cellplane(t *testing.T, args ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), self, args...)
	command.Env = append(os.Environ(), programEnv+"=1")
	out, err := command.CombinedOutput()
	return string(out), err
}

// connect takes the kubeconfig of the installation. This program does not ask the DNS of the node, so it uses the address of the Service.
func (f *federation) connect(t *testing.T) {
	t.Helper()
	secret, err := f.node.Client.CoreV1().Secrets(federationNamespace).Get(t.Context(), "cellplane-kubeconfig", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	service, err := f.node.Client.CoreV1().Services(federationNamespace).Get(t.Context(), "cellplane-gateway", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const host = "cellplane-gateway." + federationNamespace + ".svc"
	for _, cluster := range content.Clusters {
		if want := "https://" + host + ":443"; cluster.Server != want {
			t.Errorf("the kubeconfig is for %s, want %s", cluster.Server, want)
		}
		cluster.Server, cluster.TLSServerName = "https://"+service.Spec.ClusterIP, host
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*content, file); err != nil {
		t.Fatal(err)
	}
	f.kubeconfig = kubectltest.Kubectl(file)
	if f.config, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		t.Fatal(err)
	}
	f.config.QPS = -1
	if f.client, err = kubernetes.NewForConfig(f.config); err != nil {
		t.Fatal(err)
	}
	f.cells = map[string]kubernetes.Interface{}
	for _, cell := range []string{"cell-a", "cell-b"} {
		f.cells[cell] = f.connectCell(t, cell)
	}
}

// connectCell returns a client of the API server of a cell.
func (f *federation) connectCell(t *testing.T, cell string) kubernetes.Interface {
	t.Helper()
	secret, err := f.node.Client.CoreV1().Secrets(federationNamespace).Get(t.Context(), "cellplane-"+cell+"-admin", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := "cellplane-" + cell + "-apiserver"
	service, err := f.node.Client.CoreV1().Services(federationNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + service.Spec.ClusterIP + ":6443", TLSClientConfig: rest.TLSClientConfig{
		ServerName: name + "." + federationNamespace + ".svc",
		CAData:     secret.Data["ca.crt"], CertData: secret.Data[corev1.TLSCertKey], KeyData: secret.Data[corev1.TLSPrivateKeyKey],
	}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// counts returns how many ConfigMaps with a label each cell has in the namespace "shop".
func (f *federation) counts(t *testing.T, selector string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for cell, client := range f.cells {
		list, err := client.CoreV1().ConfigMaps("shop").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatalf("%s: %v", cell, err)
		}
		found[cell] = len(list.Items)
	}
	return found
}

// spread is enough objects for each of three cells to get some.
const spread = 64

// spreadObjects returns the manifest of ConfigMaps with a label, and their names.
func spreadObjects(t *testing.T, label string) (manifest string, names []string) {
	t.Helper()
	list := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	for i := range spread {
		name := fmt.Sprintf("%s-%d", label, i)
		names = append(names, name)
		list.Items = append(list.Items, corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"spread": label}},
		})
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), names
}

// TestInstallation installs a federation, uses it, and removes it.
func TestInstallation(t *testing.T) {
	f := installFederation(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(describe(f.node.Client, federationNamespace))
		}
	})
	t.Run("all pods are restricted and ready", f.testPods)
	if !t.Run("kubectl", f.testKubectl) {
		return
	}
	members := []*member{f.startMember(t, "member1"), f.startMember(t, "member2")}
	t.Run("a Deployment reaches members", func(t *testing.T) { f.testPropagation(t, members) })
	t.Run("streams of real pods", f.testStreams)
	if *full {
		t.Run("pods can be missed", func(t *testing.T) { f.testPodsCanBeMissed(t, members) })
		t.Run("cells are added and removed", f.testCells)
	}
	t.Run("nothing is left", func(t *testing.T) { f.testUninstall(t, members) })
}

// mayEnd matches the last words of a program that may have ended: a leader that lost its Lease, on a loaded machine, or a stock
// kube-controller-manager that started before its API servers, for which it does not wait. Everything else of the chart waits.
var mayEnd = regexp.MustCompile(`leaderelection lost|the Lease of the leader is lost|unable to load configmap based request-header-client-ca-file: .*connect: connection refused`)

func (f *federation) testPods(t *testing.T) {
	ns, err := f.node.Client.CoreV1().Namespaces().Get(t.Context(), federationNamespace, metav1.GetOptions{})
	if err != nil || ns.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("the labels of the namespace are %v (%v)", ns.Labels, err)
	}
	pods, err := f.node.Client.CoreV1().Pods(federationNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Labels["app.kubernetes.io/component"] == "federate" {
			continue
		}
		if !isReady(pod) {
			t.Error(state(pod))
		}
		for _, status := range pod.Status.ContainerStatuses {
			if status.RestartCount == 0 {
				continue
			}
			if ended := status.LastTerminationState.Terminated; ended == nil || !mayEnd.MatchString(ended.Message) { // the end of its log
				t.Error(state(pod))
			}
		}
	}
}

// testKubectl creates, lists and watches through the Service of the gateways.
func (f *federation) testKubectl(t *testing.T) {
	k := f.kubeconfig
	k.Must(t, "create", "namespace", "shop")
	watched := &kubectltest.Output{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = k.To(ctx, t, watched, "", "get", "configmaps", "-n", "shop", "--watch", "-o", "name")
	}()
	defer func() { cancel(); <-ended }()
	manifest, names := spreadObjects(t, "config")
	testenv.Eventually(t, "they are created", func(ctx context.Context) (bool, error) { // the namespace needs a moment to reach all cells
		out, err := k.Try(ctx, t, manifest, "apply", "-f", "-")
		if err != nil {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		return true, nil
	})
	listed := k.Must(t, "get", "configmaps", "-n", "shop", "-o", "name")
	for _, name := range names {
		if !strings.Contains(listed, "configmap/"+name+"\n") {
			t.Errorf("%s is not in the list: %s", name, listed)
		}
		testenv.Eventually(t, "it is watched", func(context.Context) (bool, error) {
			return strings.Contains(watched.String(), "configmap/"+name+"\n"), fmt.Errorf("watched: %s", watched)
		})
	}
	if counts := f.counts(t, "spread=config"); counts["cell-a"] == 0 || counts["cell-b"] == 0 || counts["cell-a"]+counts["cell-b"] != len(names) {
		t.Errorf("of %d objects, the cells have %v", len(names), counts)
	}
	counts := k.Must(t, "get", "cells")
	t.Log(counts)
	for _, cell := range []string{"cell-a", "cell-b"} {
		if !strings.Contains(counts, cell) {
			t.Errorf("there is no %s in %s", cell, counts)
		}
	}
}
