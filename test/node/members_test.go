package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gobin"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/enclosure"
	"github.com/cellplane/cellplane/internal/testenv/realnode"
)

// member is a cluster with simulated nodes that pods of the real node reach.
type member struct {
	name   string
	client kubernetes.Interface
}

// startMember starts a cluster that lives as long as the test, and joins it.
func (f *federation) startMember(t *testing.T, name string) *member {
	t.Helper()
	ports, err := controlplane.ChoosePorts()
	if err != nil {
		t.Fatal(err)
	}
	plane, err := controlplane.New(controlplane.Config{
		Name: name, Role: controlplane.Member, Nodes: 1, Dir: filepath.Join(t.TempDir(), name), Binaries: gobin.Binaries{Dir: enclosure.Inside().Data[realnode.KubeData]},
		Ports: ports, Address: f.node.Address, NoFsync: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startsWithin)
	defer cancel()
	if err := plane.Start(ctx); err != nil {
		t.Fatal(err)
	}
	config, err := plane.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	f.join(t, name, string(kubectl(t, config)))
	return &member{name: name, client: client}
}

// join joins a cluster and waits until it is ready.
func (f *federation) join(t *testing.T, name, kubeconfig string) {
	t.Helper()
	if out, err := cellplane(t, "join", name, "--kubeconfig="+string(f.kubeconfig), "--member-kubeconfig="+kubeconfig); err != nil {
		t.Fatalf("joining %s: %v: %s", name, err, out)
	}
	testenv.Eventually(t, name+" is ready", func(ctx context.Context) (bool, error) {
		out, err := f.kubeconfig.Try(ctx, t, "", "get", "cluster", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
		if err != nil {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		return strings.Contains(out, `"status":"True"`), errors.New(out)
	})
}

// web is a Deployment of four replicas, two in each of two members.
const web = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: simulated}]}
`

// testPropagation expects that a Deployment reaches the members, and that its status and pods come back.
func (f *federation) testPropagation(t *testing.T, members []*member) {
	if out, err := f.kubeconfig.Try(t.Context(), t, web, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	testenv.Eventually(t, "all replicas are ready", func(ctx context.Context) (bool, error) {
		web, err := f.client.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return web.Status.ReadyReplicas == 4, fmt.Errorf("the status is %+v", web.Status)
	})
	for _, m := range members {
		web, err := m.client.AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || *web.Spec.Replicas != 2 {
			t.Errorf("%s has %v (%v)", m.name, web.Spec.Replicas, err)
		}
	}
	testenv.Eventually(t, "all pods are in one list", func(ctx context.Context) (bool, error) {
		pods, err := f.client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return false, err
		}
		return len(pods.Items) == 4, errors.New(fmt.Sprint(len(pods.Items), " pods"))
	})
}
