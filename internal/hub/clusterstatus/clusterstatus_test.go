package clusterstatus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/hub/hubtest"
	"github.com/cellplane/cellplane/internal/testenv"
)

func start(t *testing.T) *hubtest.Hub {
	t.Helper()
	return hubtest.Start(t, func(ctx context.Context, mgr manager.Manager) error {
		return Add(ctx, mgr, Options{
			Interval: 100 * time.Millisecond, ProbeTimeout: time.Second, SuccessThreshold: 300 * time.Millisecond, FailureThreshold: 300 * time.Millisecond,
			MonitorInterval: 50 * time.Millisecond, MonitorGracePeriod: 2 * time.Second, StartupGracePeriod: time.Second,
		})
	})
}

func is(status metav1.ConditionStatus, reason string) func(*clusterv1alpha1.Cluster) bool {
	return func(c *clusterv1alpha1.Cluster) bool {
		ready := meta.FindStatusCondition(c.Status.Conditions, names.ClusterReady)
		return ready != nil && ready.Status == status && ready.Reason == reason
	}
}

// credentials creates an identity without rights in a shared member.
func credentials(t *testing.T, hub *hubtest.Hub, namespace, name string) (endpoint string, secret *corev1.Secret) {
	t.Helper()
	member := testenv.SharedMembers(t)[0]
	accounts := member.Client(t).CoreV1().ServiceAccounts(member.Namespace(t))
	account, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "status"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := member.RESTConfig()
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"token": []byte(token.Status.Token), "caBundle": config.CAData}}
	if err := hub.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Client.Delete(context.Background(), secret) })
	return config.Host, secret
}

func TestCredentialsComeAndGo(t *testing.T) {
	hub := start(t)
	missing := hub.Cluster(t, "none", clusterv1alpha1.ClusterSpec{APIEndpoint: "https://127.0.0.1:1"})
	seen := hub.Eventually(t, "a cluster without credentials is not reachable", missing, is(metav1.ConditionFalse, reasonNotReachable))
	if message := meta.FindStatusCondition(seen.Status.Conditions, names.ClusterReady).Message; !strings.Contains(message, "spec.secretRef") {
		t.Errorf("the message is %q", message)
	}

	endpoint, secret := credentials(t, hub, names.ClusterNamespace, hub.Name)
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{APIEndpoint: endpoint, SecretRef: &clusterv1alpha1.LocalSecretReference{Namespace: secret.Namespace, Name: secret.Name}})
	hub.Eventually(t, "it is ready", cluster, is(metav1.ConditionTrue, reasonReady))

	good := secret.DeepCopy()
	secret.Data["token"] = []byte("forged")
	if err := hub.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, "a bad token is noticed", cluster, is(metav1.ConditionFalse, reasonNotReady))
	secret.Data = good.Data
	if err := hub.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, "a good token is noticed", cluster, is(metav1.ConditionTrue, reasonReady))
	// Another authority needs new connections, not only another header.
	secret.Data = map[string][]byte{"token": good.Data["token"]}
	if err := hub.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, "a missing authority is noticed", cluster, is(metav1.ConditionFalse, reasonNotReachable))
	if err := hub.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, "a deleted Secret is noticed", cluster, func(c *clusterv1alpha1.Cluster) bool {
		ready := meta.FindStatusCondition(c.Status.Conditions, names.ClusterReady)
		return strings.Contains(ready.Message, "does not exist")
	})
	good.ResourceVersion = ""
	if err := hub.Client.Create(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, "a Secret that is back is noticed", cluster, is(metav1.ConditionTrue, reasonReady))
}

// Other components write conditions too, for example a detector of DNS failures.
func TestConditionsOfOthersStay(t *testing.T) {
	hub := start(t)
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{APIEndpoint: "https://127.0.0.1:1"})
	hub.Eventually(t, "a cluster without credentials is not reachable", cluster, is(metav1.ConditionFalse, reasonNotReachable))
	const theirs = "ServiceDomainNameResolutionReady"
	hub.SetCondition(t, cluster, theirs, metav1.ConditionFalse)
	patch := fmt.Appendf(nil, `{"spec":{"secretRef":{"namespace":%q,"name":%q}}}`, names.ClusterNamespace, hub.Name)
	if err := hub.Client.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	seen := hub.Eventually(t, "the condition is updated", cluster, func(c *clusterv1alpha1.Cluster) bool {
		ready := meta.FindStatusCondition(c.Status.Conditions, names.ClusterReady)
		return ready != nil && strings.Contains(ready.Message, "does not exist")
	})
	if !meta.IsStatusConditionFalse(seen.Status.Conditions, theirs) {
		t.Errorf("the conditions are %+v", seen.Status.Conditions)
	}
}

func TestCredentialsInAnotherNamespace(t *testing.T) {
	hub := start(t)
	namespace := testenv.SharedAPIServer(t).Namespace(t)
	endpoint, secret := credentials(t, hub, namespace, "elsewhere")
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{APIEndpoint: endpoint, SecretRef: &clusterv1alpha1.LocalSecretReference{Namespace: namespace, Name: secret.Name}})
	hub.Eventually(t, "it is ready", cluster, is(metav1.ConditionTrue, reasonReady))
}

func TestEndpointMoves(t *testing.T) {
	hub := start(t)
	endpoint, secret := credentials(t, hub, names.ClusterNamespace, hub.Name)
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{APIEndpoint: "https://127.0.0.1:1", SecretRef: &clusterv1alpha1.LocalSecretReference{Namespace: secret.Namespace, Name: secret.Name}})
	moved := hub.Eventually(t, "the endpoint is unreachable", cluster, is(metav1.ConditionFalse, reasonNotReachable))
	moved.Spec.APIEndpoint = endpoint
	if err := hub.Client.Update(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, "it is ready at the new endpoint", cluster, is(metav1.ConditionTrue, reasonReady))
}

func TestAgentFallsSilent(t *testing.T) {
	hub := start(t)
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Pull})
	hub.Eventually(t, "an agent that never came up is noticed", cluster, is(metav1.ConditionUnknown, reasonNeverReported))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.ClusterNamespace, Name: cluster.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("agent"), RenewTime: ptr.To(metav1.NowMicro())},
	}
	if err := hub.Client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Client.Delete(context.Background(), lease) })
	hub.SetCondition(t, cluster, names.ClusterReady, metav1.ConditionTrue) // the agent reports
	hub.Eventually(t, "an agent that stops is noticed", cluster, is(metav1.ConditionUnknown, reasonUnknown))
}
