package dependencies_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/autoscaled"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/dependencies"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// world is a federation of two cells with a hub and a gateway. The engines have only the permissions that Rules
// grants.
type world struct {
	*testing.T
	federation *local.Federation
	ns         string
	gateway    ctrlclient.Client // with administrator rights
	hub        ctrlclient.Client
	cells      map[string]ctrlclient.Client
	member     ctrlclient.Client
	owners     *slots.Map
	stop       map[string]func()
	start      map[string]func()
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, federation: testenv.StartFederation(t, local.Spec{Cells: 2, Members: 1, Nodes: 1}),
		cells: map[string]ctrlclient.Client{}, stop: map[string]func(){}, start: map[string]func(){}}
	w.hub = w.client(w.admin(w.federation.Hub))
	w.member = w.client(w.admin(w.federation.Members[0]))
	gateway := gatewaytest.Start(t, w.federation, nil)
	w.gateway = w.client(gateway.Config(t))
	w.create(w.hub, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "engines"}, Rules: append(dependencies.Rules(), autoscaled.Rules()...)})
	token := w.token()
	for _, plane := range append([]*controlplane.ControlPlane{w.federation.Hub}, w.federation.Cells...) {
		w.join(plane, token)
		w.prepareEngine(plane, gateway)
	}
	var cells []slots.Cell
	for _, cell := range w.federation.Cells {
		cells = append(cells, slots.Cell{Name: cell.Name(), Weight: 1})
	}
	var err error
	w.owners, err = slots.Compile(1, cells)
	w.check(err)
	w.ns = gatewaytest.Namespace(t, w.federation, "shop")
	return w
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) admin(plane *controlplane.ControlPlane) *rest.Config {
	w.Helper()
	config, err := plane.AdminConfig()
	w.check(err)
	config.QPS = -1
	return config
}

func (w *world) client(config *rest.Config) ctrlclient.Client {
	w.Helper()
	scheme := runtime.NewScheme()
	w.check(clientscheme.AddToScheme(scheme))
	w.check(api.AddToScheme(scheme))
	client, err := ctrlclient.New(config, ctrlclient.Options{Scheme: scheme})
	w.check(err)
	return client
}

func (w *world) create(client ctrlclient.Client, objects ...ctrlclient.Object) {
	w.Helper()
	for _, obj := range objects {
		if err := client.Create(w.Context(), obj); err != nil {
			w.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
		}
	}
}

// token returns an administrator's token for the member.
func (w *world) token() string {
	w.Helper()
	w.create(w.member, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "engine"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "engine"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "engine"}},
		})
	client, err := kubernetes.NewForConfig(w.admin(w.federation.Members[0]))
	w.check(err)
	request, err := client.CoreV1().ServiceAccounts("default").CreateToken(w.Context(), "engine", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.check(err)
	return request.Status.Token
}

func (w *world) join(plane *controlplane.ControlPlane, token string) {
	w.Helper()
	client := w.client(w.admin(plane))
	member := w.federation.Members[0]
	ca, err := os.ReadFile(member.CAFile())
	w.check(err)
	ref := &clusterv1alpha1.LocalSecretReference{Namespace: names.ClusterNamespace, Name: member.Name()}
	w.create(client,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.SystemNamespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}, Data: map[string][]byte{"token": []byte(token), "caBundle": ca}},
		&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: member.Name()}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push, APIEndpoint: member.URL(), SecretRef: ref}})
	if plane.Role() == controlplane.Cell {
		w.cells[plane.Name()] = client
	}
}

// prepareEngine starts the engine of a control plane. In other control planes it has only the permissions that it needs there.
func (w *world) prepareEngine(plane *controlplane.ControlPlane, gateway *gatewaytest.Gateway) {
	w.Helper()
	user := "engine:" + plane.Name()
	w.create(w.hub, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "engines"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	config := engine.Config{Cell: plane.Name(), Config: w.admin(plane), Hub: plane.Role() == controlplane.Hub, MarkTargets: true}
	config.Federation = gateway.ConfigFor(w, user)
	atHub := rest.CopyConfig(config.Federation)
	hub := w.admin(w.federation.Hub)
	atHub.Host, atHub.CAData, atHub.CAFile = hub.Host, hub.CAData, hub.CAFile
	config.Federation.Host += "/federation"
	if !config.Hub {
		config.HubAPI = atHub
	}
	w.start[plane.Name()] = func() {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := config.Run(ctx); err != nil && ctx.Err() == nil {
				w.Errorf("engine of %s: %v", plane.Name(), err)
			}
		}()
		w.stop[plane.Name()] = func() { cancel(); <-done }
	}
	w.start[plane.Name()]()
	w.Cleanup(func() { w.stop[plane.Name()]() })
}

// cellOf returns the cell that owns a name.
func (w *world) cellOf(name string) string {
	return w.owners.Name(w.owners.Route(slots.Of(w.ns, name)).New)
}

// nameIn returns a name that the cell owns.
func (w *world) nameIn(cell, prefix string) string {
	for i := range 1000 {
		if name := fmt.Sprintf("%s-%d", prefix, i); w.cellOf(name) == cell {
			return name
		}
	}
	w.Fatalf("found no name in cell %s", cell)
	return ""
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name}
}

// policy propagates all Deployments with their dependencies to the member. It is created in every control plane
// because no hub manager runs.
func (w *world) policy() {
	w.Helper()
	for _, client := range w.cells {
		w.create(client, &policyv1alpha1.PropagationPolicy{ObjectMeta: w.meta("all"), Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}}, PropagateDeps: true,
		}})
	}
}

func (w *world) deployment(name string, needs ...func(*corev1.PodSpec)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: w.meta(name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/app:1"}}}},
	}}
	for _, need := range needs {
		need(&d.Spec.Template.Spec)
	}
	return d
}

func mounts(configMap string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: strings.ReplaceAll(configMap, ".", "-"), VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
		}})
	}
}

func mountsSecret(secret string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: secret, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}})
	}
}

func runsAs(account string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) { pod.ServiceAccountName = account }
}

func (w *world) configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: w.meta(name), Data: map[string]string{"k": value}}
}

func (w *world) until(what string, client ctrlclient.Client, obj ctrlclient.Object, ok func() bool) {
	w.Helper()
	testenv.Eventually(w, what, func(ctx context.Context) (bool, error) {
		if err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		return ok(), fmt.Errorf("got %+v", obj)
	})
}

func (w *world) there(what string, client ctrlclient.Client, obj ctrlclient.Object) {
	w.Helper()
	w.until(what, client, obj, func() bool { return true })
}

func (w *world) gone(what string, client ctrlclient.Client, obj ctrlclient.Object) {
	w.Helper()
	testenv.Eventually(w, what, func(ctx context.Context) (bool, error) {
		err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj)
		return apierrors.IsNotFound(err), err
	})
}

func (w *world) delivered(name, value string) {
	w.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: w.meta(name)}
	w.until("the member has "+name+" as it is", w.member, cm, func() bool { return cm.Data["k"] == value })
}

func (w *world) binding(name string) *workv1alpha2.ResourceBinding {
	return &workv1alpha2.ResourceBinding{ObjectMeta: w.meta(name)}
}

// TestDependenciesElsewhere propagates dependencies from another cell and from the hub.
func TestDependenciesElsewhere(t *testing.T) {
	w := newWorld(t)
	w.policy()
	here, there := w.federation.Cells[0].Name(), w.federation.Cells[1].Name()
	web, web2 := w.nameIn(here, "web"), w.nameIn(here, "web2")
	settings, password, late := w.nameIn(there, "settings"), w.nameIn(there, "password"), w.nameIn(there, "late")

	w.create(w.gateway, w.configMap(settings, "1"),
		&corev1.Secret{ObjectMeta: w.meta(password), Data: map[string][]byte{"k": []byte("1")}},
		&corev1.ServiceAccount{ObjectMeta: w.meta("builder")},
		w.deployment(web, mounts(cell.RootCAConfigMap), mounts(settings), mountsSecret(password), mounts(late), runsAs("builder")))

	// The dependencies are applied by the engines that hold them.
	w.there("the Deployment is in the member", w.member, w.deployment(web))
	w.delivered(settings, "1")
	w.there("the Secret is in the member", w.member, &corev1.Secret{ObjectMeta: w.meta(password)})
	account := &corev1.ServiceAccount{ObjectMeta: w.meta("builder")}
	w.until("the hub's ServiceAccount is in the member", w.member, account, func() bool { return account.Labels[names.CellLabel] == "hub" })
	attached := w.binding(settings + "-configmap")
	w.until("the other cell has the binding", w.cells[there], attached, func() bool {
		return attached.Spec.Resource.UID != "" && len(attached.OwnerReferences) == 1
	})
	if len(attached.Spec.RequiredBy) != 1 || attached.Spec.RequiredBy[0].Name != web+"-deployment" {
		t.Errorf("requiredBy = %+v", attached.Spec.RequiredBy)
	}
	for name, plane := range w.cells { // every member has its own
		if err := plane.Get(t.Context(), ctrlclient.ObjectKeyFromObject(w.binding(cell.RootCAConfigMap+"-configmap")), w.binding("")); !apierrors.IsNotFound(err) {
			t.Errorf("the CA of the federation is propagated from %s: %v", name, err)
		}
	}
	copied := &corev1.ConfigMap{ObjectMeta: w.meta(settings)}
	w.there("the ConfigMap is in the member", w.member, copied)
	if copied.Labels[names.CellLabel] != there {
		t.Errorf("applied by %q", copied.Labels[names.CellLabel])
	}

	// Changes are propagated, and dependencies created later are found.
	cm := w.configMap(settings, "2")
	w.check(w.gateway.Update(t.Context(), cm))
	w.delivered(settings, "2")
	w.create(w.gateway, w.configMap(late, "1"))
	w.delivered(late, "1")

	// A recreated dependency is propagated again.
	w.check(w.gateway.Delete(t.Context(), w.configMap(settings, "")))
	w.gone("the ConfigMap is removed from the member", w.member, w.configMap(settings, ""))
	w.create(w.gateway, w.configMap(settings, "3"))
	w.delivered(settings, "3")

	// A second workload needs it too. The first one is deleted while its engine is down.
	w.create(w.gateway, w.deployment(web2, mounts(settings)))
	w.until("two bindings require it", w.cells[there], attached, func() bool { return len(attached.Spec.RequiredBy) == 2 })
	w.stop[here]()
	w.check(w.gateway.Delete(t.Context(), w.deployment(web)))
	w.start[here]()
	w.until("one binding requires it", w.cells[there], attached, func() bool { return len(attached.Spec.RequiredBy) == 1 })
	w.gone("the first binding is deleted", w.cells[here], w.binding(web+"-deployment"))
	for _, obj := range []ctrlclient.Object{w.deployment(web), w.configMap(late, ""), &corev1.Secret{ObjectMeta: w.meta(password)}, &corev1.ServiceAccount{ObjectMeta: w.meta("builder")}} {
		w.gone(fmt.Sprintf("%T %s is removed from the member", obj, obj.GetName()), w.member, obj)
	}
	w.delivered(settings, "3")
	if attached.Labels[names.DependedFromLabelPrefix+here] == "" {
		t.Errorf("labels = %v", attached.Labels)
	}

	// Delete the second workload.
	w.check(w.gateway.Delete(t.Context(), w.deployment(web2)))
	w.gone("the attached binding is deleted", w.cells[there], attached)
	w.gone("the ConfigMap is removed from the member", w.member, w.configMap(settings, ""))
	w.there("the template still exists", w.gateway, w.configMap(settings, ""))

	w.dependenciesByLabel(here, there)
	w.movedAway(here, there)
	w.testAutoscalerElsewhere(here, there)
}

// dependenciesByLabel finds dependencies by label in all cells.
func (w *world) dependenciesByLabel(here, there string) {
	for _, client := range w.cells {
		custom := &configv1alpha1.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: "parts"}}
		custom.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "v1", Kind: "PodTemplate"}
		custom.Spec.Customizations.DependencyInterpretation = &configv1alpha1.DependencyInterpretation{LuaScript: `
function GetDependencies(obj)
  return {{apiVersion = "v1", kind = "ConfigMap", namespace = obj.metadata.namespace, labelSelector = {matchLabels = {part = "app"}}}}
end`}
		w.create(client, custom, &policyv1alpha1.PropagationPolicy{ObjectMeta: w.meta("podtemplates"), Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "PodTemplate"}}, PropagateDeps: true,
		}})
	}
	near, far := w.configMap(w.nameIn(here, "near"), "1"), w.configMap(w.nameIn(there, "far"), "1")
	for _, cm := range []*corev1.ConfigMap{near, far} {
		cm.Labels = map[string]string{"part": "app"}
		w.create(w.gateway, cm)
	}
	name := w.nameIn(here, "template")
	w.create(w.gateway, &corev1.PodTemplate{ObjectMeta: w.meta(name), Template: w.deployment("x").Spec.Template})
	w.delivered(near.Name, "1")
	w.delivered(far.Name, "1")
}

// movedAway checks that the stale copy of a moved binding does not detach what the moved binding needs.
func (w *world) movedAway(here, there string) {
	web, settings := w.nameIn(here, "moving"), w.nameIn(there, "kept")
	w.create(w.gateway, w.configMap(settings, "1"), w.deployment(web, mounts(settings)))
	w.delivered(settings, "1")
	binding := w.binding(web + "-deployment")
	cell := w.cells[here]
	w.there("it has a binding", cell, binding)
	w.stop[here]()
	for _, obj := range []ctrlclient.Object{w.deployment(web), binding} {
		w.there("the stale copy exists", cell, obj)
		labels := maps.Clone(obj.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		labels[names.RebalanceStatusLabel] = names.RebalanceMigrated
		obj.SetLabels(labels)
		obj.SetFinalizers(nil)
		obj.SetOwnerReferences(nil) // the garbage collector may be late
		w.check(cell.Update(w.Context(), obj))
	}
	w.start[here]()
	// The template is deleted first, then the binding.
	w.detaches(here, there, "before")
	w.check(cell.Delete(w.Context(), w.deployment(web)))
	w.gone("the stale template is deleted", cell, w.deployment(web))
	w.detaches(here, there, "between")
	w.check(ctrlclient.IgnoreNotFound(cell.Delete(w.Context(), binding)))
	w.gone("the stale binding is deleted", cell, w.binding(web+"-deployment"))
	w.detaches(here, there, "after")
	attached := w.binding(settings + "-configmap")
	w.there("the attached binding exists", w.cells[there], attached)
	if len(attached.Spec.RequiredBy) != 1 {
		w.Errorf("requiredBy = %+v", attached.Spec.RequiredBy)
	}
}

// detaches waits until an engine has processed all events so far: it detaches a binding in another cell.
func (w *world) detaches(here, there, prefix string) {
	w.Helper()
	name, settings := w.nameIn(here, prefix), w.nameIn(there, prefix+"-settings")
	w.create(w.gateway, w.configMap(settings, "1"), w.deployment(name, mounts(settings)))
	w.delivered(settings, "1")
	w.check(w.gateway.Delete(w.Context(), w.deployment(name)))
	w.gone("the attached binding is deleted", w.cells[there], w.binding(settings+"-configmap"))
}
