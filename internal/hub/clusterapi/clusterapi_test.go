package clusterapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/hub/clusterapi"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/testenv"
)

const fleetNamespace = "fleet"

var clusterKind = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}

// world is a hub, which is the management cluster as well, and members that are joined through it.
type world struct {
	hub     *rest.Config
	objects client.Client
	members []*testenv.ControlPlane
	test    *testing.T // that all others are part of
	stop    func()     // ends the controller
}

func TestClusterAPI(t *testing.T) {
	config, err := testenv.StartFederation(t, local.Spec{}).Hub.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{hub: config, members: testenv.SharedMembers(t), test: t}
	w.run(t) // Cluster API is not installed yet
	w.install(t)
	if w.objects, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if err := w.objects.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleetNamespace}}); err != nil {
		t.Fatal(err)
	}
	t.Run("joins and leaves", w.testJoinsAndLeaves)
	t.Run("bad kubeconfig", w.testBadKubeconfig)
	t.Run("joined by hand", w.testJoinedByHand)
	t.Run("kept out", w.testKeptOut)
	t.Run("a cell", w.testCell)
	t.Run("moved", w.testMoved)
	t.Run("interrupted", w.testInterrupted)
	t.Run("deleted while nobody looked", w.testDeletedMeanwhile)
}

// run runs the controller until it is stopped.
func (w *world) run(t *testing.T) {
	t.Helper()
	controller, err := clusterapi.New(w.hub, w.hub)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := controller.Run(ctx); err != nil {
			w.test.Error(err)
		}
	}()
	w.stop = func() { cancel(); <-ended }
	w.test.Cleanup(w.stop)
}

// install installs a minimal definition of Cluster API's Cluster.
func (w *world) install(t *testing.T) {
	t.Helper()
	extensions, err := clientset.NewForConfig(w.hub)
	if err != nil {
		t.Fatal(err)
	}
	open := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	definitions := extensions.ApiextensionsV1().CustomResourceDefinitions()
	_, err = definitions.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "clusters.cluster.x-k8s.io",
			// The API server reserves groups under x-k8s.io for approved APIs.
			Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, a test"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: clusterKind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "clusters", Singular: "cluster", Kind: clusterKind.Kind, ListKind: "ClusterList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1beta1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: open}},
				{Name: clusterKind.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: open}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the kind of Cluster API is served", func(ctx context.Context) (bool, error) {
		definition, err := definitions.Get(ctx, "clusters.cluster.x-k8s.io", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

// machine creates a Cluster of Cluster API with a finalizer.
func (w *world) machine(t *testing.T, name string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(clusterKind)
	machine.SetNamespace(fleetNamespace)
	machine.SetName(name)
	machine.SetFinalizers([]string{"cluster.cluster.x-k8s.io"})
	if change != nil {
		change(machine)
	}
	if err := w.objects.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.forget(t, name) })
	return machine
}

// forget removes a cluster from the federation and from the member, except for the namespace of the identities, which
// other packages may use.
func (w *world) forget(t *testing.T, name string) {
	ctx := context.Background()
	err := membership.Unjoin(ctx, membership.UnjoinOptions{Hub: w.hub, Name: name, Force: true})
	if err != nil && !strings.Contains(err.Error(), "there is no cluster") {
		t.Error(err)
	}
	c, all := w.members[0].Client(t), metav1.ListOptions{LabelSelector: names.ClusterLabel + "=" + name}
	err = errors.Join(
		c.CoreV1().ServiceAccounts(names.ClusterNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all),
		c.RbacV1().ClusterRoleBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, all),
		c.RbacV1().ClusterRoles().DeleteCollection(ctx, metav1.DeleteOptions{}, all),
	)
	if err != nil {
		t.Error(err)
	}
}

// giveKubeconfig puts an administrator's kubeconfig of the member where Cluster API has it.
func (w *world) giveKubeconfig(t *testing.T, name string) {
	t.Helper()
	config := w.members[0].RESTConfig()
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	content, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: "admin"}},
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.giveSecret(t, name, content)
}

func (w *world) giveSecret(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: name + "-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig}}
	if err := w.objects.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// joined waits until a cluster has joined.
func (w *world) joined(t *testing.T, name string) *clusterv1alpha1.Cluster {
	t.Helper()
	cluster := &clusterv1alpha1.Cluster{}
	testenv.Eventually(t, name+" has joined", func(ctx context.Context) (bool, error) {
		err := w.objects.Get(ctx, client.ObjectKey{Name: name}, cluster)
		return err == nil, client.IgnoreNotFound(err)
	})
	return cluster
}

// left waits until a cluster has left.
func (w *world) left(t *testing.T, name string) {
	t.Helper()
	testenv.Eventually(t, name+" has left", func(ctx context.Context) (bool, error) {
		err := w.objects.Get(ctx, client.ObjectKey{Name: name}, &clusterv1alpha1.Cluster{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// awaitEvent waits for an event about a Cluster of Cluster API.
func (w *world) awaitEvent(t *testing.T, name, reason, text string) {
	t.Helper()
	testenv.Eventually(t, "an event of "+name+" says "+text, func(ctx context.Context) (bool, error) {
		events := &corev1.EventList{}
		if err := w.objects.List(ctx, events, client.InNamespace(fleetNamespace)); err != nil {
			return false, err
		}
		for i := range events.Items {
			event := &events.Items[i]
			if event.InvolvedObject.Name == name && event.InvolvedObject.Kind == "Cluster" && event.Reason == reason && strings.Contains(event.Message, text) {
				return true, nil
			}
		}
		return false, nil
	})
}

// noEvent checks that there is no event about a Cluster of Cluster API: a failed attempt to join it would have one.
func (w *world) noEvent(t *testing.T, name string) {
	t.Helper()
	events := &corev1.EventList{}
	if err := w.objects.List(t.Context(), events, client.InNamespace(fleetNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		if events.Items[i].InvolvedObject.Name == name {
			t.Errorf("%s has an event: %s", name, events.Items[i].Message)
		}
	}
}

// remove deletes a Cluster of Cluster API; gone has its finalizer removed, too.
func (w *world) remove(t *testing.T, machine *unstructured.Unstructured, gone bool) {
	t.Helper()
	if gone {
		w.edit(t, machine, `{"metadata":{"finalizers":null}}`)
	}
	if err := w.objects.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
}

func (w *world) edit(t *testing.T, machine *unstructured.Unstructured, patch string) {
	t.Helper()
	if err := w.objects.Patch(t.Context(), machine, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// passed waits until the controller has seen everything up to now: it creates a cluster, waits until it joins, and deletes it.
func (w *world) passed(t *testing.T, name string) {
	t.Helper()
	marker := w.machine(t, name, nil)
	w.awaitEvent(t, name, "JoinFederationFailed", "does not exist yet")
	w.remove(t, marker, true)
}

func (w *world) testJoinsAndLeaves(t *testing.T) {
	machine := w.machine(t, "capi-a", nil)
	w.awaitEvent(t, "capi-a", "JoinFederationFailed", "capi-a-kubeconfig with its kubeconfig does not exist yet")
	w.giveKubeconfig(t, "capi-a")
	cluster := w.joined(t, "capi-a")
	if cluster.Spec.SyncMode != clusterv1alpha1.Push || cluster.Spec.APIEndpoint != w.members[0].RESTConfig().Host || cluster.Spec.ID == "" {
		t.Errorf("it has joined as %+v", cluster.Spec)
	}
	if cluster.Labels[names.ClusterAPINamespaceLabel] != fleetNamespace || cluster.Labels[names.ClusterAPIUIDLabel] != string(machine.GetUID()) {
		t.Errorf("its labels are %v", cluster.Labels)
	}
	w.awaitEvent(t, "capi-a", "JoinedFederation", "capi-a")
	secret := &corev1.Secret{}
	if err := w.objects.Get(t.Context(), client.ObjectKey{Namespace: cluster.Spec.SecretRef.Namespace, Name: cluster.Spec.SecretRef.Name}, secret); err != nil {
		t.Errorf("its credentials: %v", err)
	}
	// When it is deleted, it leaves while the member still answers.
	w.remove(t, machine, false)
	w.left(t, "capi-a")
	w.edit(t, machine, `{"metadata":{"finalizers":null}}`)
}

func (w *world) testBadKubeconfig(t *testing.T) {
	machine := w.machine(t, "capi-bad", nil)
	w.giveSecret(t, "capi-bad", []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: "https://member.example"}}],
		users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}}}]}`))
	w.awaitEvent(t, "capi-bad", "JoinFederationFailed", "runs a program to log in")
	w.remove(t, machine, true)
}

// testJoinedByHand checks that a cluster of the same name that somebody else joined is left alone.
func (w *world) testJoinedByHand(t *testing.T) {
	_, err := membership.Join(t.Context(), membership.Options{Hub: w.hub, Member: w.members[0].RESTConfig(), Name: "capi-hand"})
	if err != nil {
		t.Fatal(err)
	}
	machine := w.machine(t, "capi-hand", nil)
	w.passed(t, "after-hand-1")
	w.passed(t, "after-hand-2")
	w.noEvent(t, "capi-hand")
	w.giveKubeconfig(t, "capi-hand")
	w.remove(t, machine, true)
	w.passed(t, "after-hand-3")
	if cluster := w.joined(t, "capi-hand"); cluster.DeletionTimestamp != nil || cluster.Labels[names.ClusterAPIManagementLabel] != "" {
		t.Errorf("it has become %+v", cluster.ObjectMeta)
	}
}

func (w *world) testKeptOut(t *testing.T) {
	machine := w.machine(t, "capi-out", func(m *unstructured.Unstructured) { m.SetAnnotations(map[string]string{names.JoinAnnotation: "false"}) })
	w.passed(t, "after-out-1")
	w.passed(t, "after-out-2")
	w.noEvent(t, "capi-out")
	w.giveKubeconfig(t, "capi-out")
	w.passed(t, "after-out-3")
	if err := w.objects.Get(t.Context(), client.ObjectKey{Name: "capi-out"}, &clusterv1alpha1.Cluster{}); !apierrors.IsNotFound(err) {
		t.Errorf("a cluster that opted out has joined: %v", err)
	}
	w.edit(t, machine, `{"metadata":{"annotations":null}}`)
	w.joined(t, "capi-out")
	w.remove(t, machine, true)
	w.left(t, "capi-out")
}

// testCell checks that a cell of the federation does not become a member of it.
func (w *world) testCell(t *testing.T) {
	machine := w.machine(t, "capi-cell", func(m *unstructured.Unstructured) {
		m.Object["spec"] = map[string]any{"controlPlaneRef": map[string]any{"apiGroup": "controlplane.cellplane.io", "kind": "CellControlPlane", "name": "capi-cell"}}
	})
	w.giveKubeconfig(t, "capi-cell")
	w.passed(t, "after-cell-1")
	w.passed(t, "after-cell-2")
	w.noEvent(t, "capi-cell")
	if err := w.objects.Get(t.Context(), client.ObjectKey{Name: "capi-cell"}, &clusterv1alpha1.Cluster{}); !apierrors.IsNotFound(err) {
		t.Errorf("a cell has joined as a member: %v", err)
	}
	w.remove(t, machine, true)
}

// testMoved checks that a cluster that moves to another management cluster stays in the federation.
func (w *world) testMoved(t *testing.T) {
	machine := w.machine(t, "capi-move", nil)
	w.giveKubeconfig(t, "capi-move")
	w.joined(t, "capi-move")
	w.edit(t, machine, `{"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}}`)
	w.remove(t, machine, true)
	w.passed(t, "after-move-1")
	w.passed(t, "after-move-2")
	if cluster := w.joined(t, "capi-move"); cluster.DeletionTimestamp != nil {
		t.Error("a cluster that has moved leaves the federation")
	}
}

// testInterrupted checks that an interrupted join is completed.
func (w *world) testInterrupted(t *testing.T) {
	machine := w.machine(t, "capi-half", nil)
	w.giveKubeconfig(t, "capi-half")
	w.awaitEvent(t, "capi-half", "JoinedFederation", "capi-half")
	w.stop()
	cluster := w.joined(t, "capi-half")
	key := client.ObjectKey{Namespace: cluster.Spec.SecretRef.Namespace, Name: cluster.Spec.SecretRef.Name}
	orphan := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := w.objects.Patch(t.Context(), orphan, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":null}}`))); err != nil {
		t.Fatal(err)
	}
	w.run(t)
	testenv.Eventually(t, "the credentials are the Cluster's own", func(ctx context.Context) (bool, error) {
		secret := &corev1.Secret{}
		err := w.objects.Get(ctx, key, secret)
		return err == nil && len(secret.OwnerReferences) == 1 && secret.OwnerReferences[0].UID == cluster.UID, err
	})
	w.remove(t, machine, true)
	w.left(t, "capi-half")
}

func (w *world) testDeletedMeanwhile(t *testing.T) {
	machine := w.machine(t, "capi-gone", nil)
	w.giveKubeconfig(t, "capi-gone")
	cluster := w.joined(t, "capi-gone")
	w.stop()
	w.remove(t, machine, true)
	// Clusters of another management cluster are unknown here.
	foreign := cluster.DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{Name: "capi-foreign", Labels: map[string]string{names.ClusterAPIManagementLabel: "another", names.ClusterAPINamespaceLabel: fleetNamespace}}
	foreign.Spec.ID, foreign.Spec.SecretRef, foreign.Spec.ImpersonatorSecretRef = "another", nil, nil
	if err := w.objects.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.run(t)
	w.left(t, "capi-gone")
	w.passed(t, "after-foreign")
	if cluster := w.joined(t, "capi-foreign"); cluster.DeletionTimestamp != nil {
		t.Error("a cluster of another management cluster leaves the federation")
	}
}
