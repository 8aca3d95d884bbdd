package engine_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// All tests of the package share one federation: a hub and a cell with their engines, and two members.
var (
	federation *local.Federation
	cell       ctrlclient.WithWatch
	cellConfig *rest.Config
	hub        ctrlclient.WithWatch
	hubConfig  *rest.Config
	stopEngine func()
	members    = map[string]ctrlclient.WithWatch{}
)

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(engineProcess); kubeconfig != "" {
		runEngineProcess(kubeconfig)
		return
	}
	testenv.FederationMain(local.Spec{Cells: 1, Members: 2, Nodes: 2}, func(ctx context.Context, started *local.Federation) (int, error) {
		federation = started
		if err := prepare(ctx); err != nil {
			return 1, err
		}
		stopHub := enginetest.Start(ctx, engine.Config{Cell: "hub", Config: hubConfig, Hub: true, SkippedNamespaces: []*regexp.Regexp{regexp.MustCompile("^kube-.*$")}})
		defer stopHub()
		stopEngine = startEngine(ctx)
		defer func() { stopEngine() }()
		return m.Run(), nil
	})
}

// startEngine starts the engine of the cell that all tests share, and returns the function that stops it.
func startEngine(ctx context.Context) func() {
	return enginetest.Start(ctx, engine.Config{Cell: federation.Cells[0].Name(), Config: cellConfig, SuccessEvents: successEvents(), MarkTargets: true, SyncReplicas: true, FederatedRollouts: true})
}

// successEvents is for TestCost: ENGINE_SUCCESS_EVENTS=all or off.
func successEvents() events.Successes { return events.Successes(os.Getenv("ENGINE_SUCCESS_EVENTS")) }

// prepare joins the members to the hub and the cell.
func prepare(ctx context.Context) (err error) {
	if cell, cellConfig, err = enginetest.Connect(federation.Cells[0]); err != nil {
		return err
	}
	if hub, hubConfig, err = enginetest.Connect(federation.Hub); err != nil {
		return err
	}
	if err := enginetest.Prepare(ctx, hub, cell); err != nil {
		return err
	}
	for _, member := range federation.Members {
		if err := join(ctx, member); err != nil {
			return fmt.Errorf("joining %s: %w", member.Name(), err)
		}
	}
	return nil
}

func join(ctx context.Context, member *controlplane.ControlPlane) error {
	client, config, err := enginetest.Connect(member)
	if err != nil {
		return err
	}
	members[member.Name()] = client
	token, err := memberToken(ctx, config)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(member.CAFile())
	if err != nil {
		return err
	}
	for _, client := range []ctrlclient.Client{cell, hub} {
		if err := joinTo(ctx, client, member.Name(), member.URL(), token, ca); err != nil {
			return err
		}
	}
	return nil
}

func joinTo(ctx context.Context, client ctrlclient.Client, name, url, token string, ca []byte) error {
	ref := &clusterv1alpha1.LocalSecretReference{Namespace: names.ClusterNamespace, Name: name}
	if err := client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
		Data:       map[string][]byte{"token": []byte(token), "caBundle": ca},
	}); err != nil {
		return err
	}
	return client.Create(ctx, &clusterv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push, APIEndpoint: url, SecretRef: ref},
	})
}

func memberToken(ctx context.Context, config *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "engine"}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "engine"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "engine"}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	seconds := int64(24 * 3600)
	request, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "engine",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}
