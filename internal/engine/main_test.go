package engine_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

// One federation serves all tests of the package: a hub and a cell with their engines, and two members.
var (
	federation *local.Federation
	cell       ctrlclient.WithWatch
	cellConfig *rest.Config
	hub        ctrlclient.WithWatch
	hubConfig  *rest.Config
	stopEngine func()
	members    = map[string]ctrlclient.WithWatch{}
	scheme     = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(engineProcess); kubeconfig != "" {
		runEngineProcess(kubeconfig)
		return
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctrllog.SetLogger(klog.Background())
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, api.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "cellplane-engine-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binaries, err := kubebin.Ensure(ctx, func(string, int) {})
	if err != nil {
		return 1, err
	}
	federation, err = local.Open(dir, local.Spec{Cells: 1, Members: 2, Nodes: 2}, local.Options{Binaries: binaries, NoFsync: true})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := federation.Stop(context.Background()); err == nil {
			err = stopErr
		}
		federation.Close()
	}()
	if err := federation.Start(ctx, func(string) {}); err != nil {
		return 1, err
	}
	if err := prepare(ctx); err != nil {
		return 1, err
	}
	stopHub := startEngine(ctx, engine.Config{Cell: "hub", Config: hubConfig, Hub: true, SkippedNamespaces: []*regexp.Regexp{regexp.MustCompile("^kube-.*$")}})
	defer stopHub()
	stopEngine = startEngine(ctx, engine.Config{Cell: federation.Cells[0].Name(), Config: cellConfig})
	defer func() { stopEngine() }()
	return m.Run(), nil
}

// prepare joins the members to the hub and the cell.
func prepare(ctx context.Context) (err error) {
	if cellConfig, err = federation.Cells[0].AdminConfig(); err != nil {
		return err
	}
	cellConfig.QPS = -1
	if cell, err = ctrlclient.NewWithWatch(cellConfig, ctrlclient.Options{Scheme: scheme}); err != nil {
		return err
	}
	if hubConfig, err = federation.Hub.AdminConfig(); err != nil {
		return err
	}
	hubConfig.QPS = -1
	if hub, err = ctrlclient.NewWithWatch(hubConfig, ctrlclient.Options{Scheme: scheme}); err != nil {
		return err
	}
	for _, name := range []string{names.ClusterNamespace, names.SystemNamespace} {
		for _, client := range []ctrlclient.Client{cell, hub} {
			if err := client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				return err
			}
		}
	}
	for _, member := range federation.Members {
		if err := join(ctx, member); err != nil {
			return fmt.Errorf("joining %s: %w", member.Name(), err)
		}
	}
	return nil
}

func join(ctx context.Context, member *controlplane.ControlPlane) error {
	config, err := member.AdminConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	if members[member.Name()], err = ctrlclient.NewWithWatch(config, ctrlclient.Options{Scheme: scheme}); err != nil {
		return err
	}
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

// startEngine runs an engine in this process; the function stops it and waits for its end.
func startEngine(ctx context.Context, config engine.Config) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	verbosity := 0
	if os.Getenv("ENGINE_VERBOSE") != "" {
		verbosity = 2
	}
	ctx = klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity))))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := config.Run(ctx); err != nil && ctx.Err() == nil {
			panic(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
