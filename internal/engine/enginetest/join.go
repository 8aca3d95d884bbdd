package enginetest

import (
	"context"
	"fmt"
	"os"

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
)

// Join joins a member to a hub and cells, and returns an administrator's client for it.
func Join(ctx context.Context, member *controlplane.ControlPlane, to ...ctrlclient.Client) (ctrlclient.WithWatch, error) {
	client, config, err := Connect(member)
	if err != nil {
		return nil, fmt.Errorf("joining %s: %w", member.Name(), err)
	}
	token, err := memberToken(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("joining %s: %w", member.Name(), err)
	}
	ca, err := os.ReadFile(member.CAFile())
	if err != nil {
		return nil, fmt.Errorf("joining %s: %w", member.Name(), err)
	}
	for _, plane := range to {
		if err := JoinTo(ctx, plane, member.Name(), member.URL(), token, ca); err != nil {
			return nil, fmt.Errorf("joining %s: %w", member.Name(), err)
		}
	}
	return client, nil
}

// JoinTo creates a Cluster and the Secret with its credentials.
func JoinTo(ctx context.Context, client ctrlclient.Client, name, url, token string, ca []byte) error {
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
