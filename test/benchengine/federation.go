package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

const (
	memberCount = 3
	nodeCount   = 10
	// podsPerNode is enough for all pods of a big run and of its rolling update.
	podsPerNode = 2500
	startBound  = 5 * time.Minute
	stopBound   = time.Minute
)

// federation is a cell with its members, without a hub: what the hub would write to the cell is written once.
type federation struct {
	planes  *local.Federation
	cell    *plane
	members []*plane
}

// plane is a control plane and an administrator's client for it.
type plane struct {
	*controlplane.ControlPlane
	client kubernetes.Interface
}

func startFederation(ctx context.Context, dir string, binaries kubebin.Binaries) (_ *federation, err error) {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	shape := local.Spec{WithoutHub: true, Cells: 1, Members: memberCount, Nodes: nodeCount}
	planes, err := local.Open(dir, shape, local.Options{Binaries: binaries})
	if err != nil {
		return nil, err
	}
	f := &federation{planes: planes}
	defer func() {
		if err != nil {
			_ = f.stop()
		}
	}()
	if err := planes.Start(ctx, func(string) {}); err != nil {
		return nil, err
	}
	if f.cell, err = connect(planes.Cells[0]); err != nil {
		return nil, err
	}
	for _, member := range planes.Members {
		m, err := connect(member)
		if err != nil {
			return nil, err
		}
		f.members = append(f.members, m)
	}
	return f, f.join(ctx)
}

func connect(c *controlplane.ControlPlane) (*plane, error) {
	config, err := c.AdminConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "benchengine"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &plane{ControlPlane: c, client: client}, nil
}

func (f *federation) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	err := f.planes.Stop(ctx)
	f.planes.Close()
	return err
}

// join joins the members to the cell.
func (f *federation) join(ctx context.Context) error {
	cell, err := f.objects()
	if err != nil {
		return err
	}
	for _, name := range []string{names.ClusterNamespace, names.SystemNamespace, benchNamespace} {
		if err := cell.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, member := range f.members {
		group.Go(func() error {
			if err := joinMember(ctx, cell, member); err != nil {
				return fmt.Errorf("joining %s: %w", member.Name(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// objects returns a client for the kinds of Cellplane in the cell.
func (f *federation) objects() (ctrlclient.Client, error) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, api.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	config, err := f.cell.AdminConfig()
	if err != nil {
		return nil, err
	}
	return ctrlclient.New(config, ctrlclient.Options{Scheme: kinds})
}

func joinMember(ctx context.Context, cell ctrlclient.Client, member *plane) error {
	if err := enlargeNodes(ctx, member.client); err != nil {
		return err
	}
	token, err := engineToken(ctx, member.client)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(member.CAFile())
	if err != nil {
		return err
	}
	ref := &clusterv1alpha1.LocalSecretReference{Namespace: names.ClusterNamespace, Name: member.Name()}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
		Data:       map[string][]byte{fleet.MemberTokenKey: []byte(token), fleet.MemberCAKey: ca},
	}
	if err := cell.Create(ctx, secret); err != nil {
		return err
	}
	return cell.Create(ctx, &clusterv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: member.Name()},
		Spec:       clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push, APIEndpoint: member.URL(), SecretRef: ref},
	})
}

// enlargeNodes raises the capacity of nodes, so that the members' schedulers never wait.
func enlargeNodes(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"status":{"capacity":{"pods":"%[1]d"},"allocatable":{"pods":"%[1]d"}}}`, podsPerNode)
	for _, node := range nodes.Items {
		if _, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

// engineToken returns a credential for the engine in a member.
func engineToken(ctx context.Context, client kubernetes.Interface) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: engineAccount}}
	if _, err := client.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}
	if err := makeAdmin(ctx, client, subject); err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}
	request, err := client.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

func makeAdmin(ctx context.Context, client kubernetes.Interface, subject rbacv1.Subject) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: engineAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{subject},
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}
