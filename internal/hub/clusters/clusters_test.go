package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
	"github.com/cellplane/cellplane/internal/hub/executionspace"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/simulate"
	"github.com/cellplane/cellplane/internal/testenv"
)

// world is a hub and two members that have joined it, with only the rights that join grants.
type world struct {
	hub     *rest.Config
	objects client.Client
	members []*controlplane.ControlPlane
}

const interval = 200 * time.Millisecond

func TestClusters(t *testing.T) {
	w := start(t)
	t.Run("status", w.testStatus)
	t.Run("pods", w.testPods)
	t.Run("volumes", w.testVolumes)
	t.Run("storage classes", w.testStorageClasses)
	t.Run("quotas", w.testQuotas)
	t.Run("nothing is written that did not change", w.testIdle)
	t.Run("new kinds", w.testNewKind)
	t.Run("kinds that fail", w.testBrokenKind)
	t.Run("a member that hangs", w.testHangingMember)
	t.Run("tokens", w.testRotation)
	t.Run("leaving", w.testLeaving)
}

func start(t *testing.T) *world {
	hub := testenv.StartFederation(t, local.Spec{})
	members := testenv.StartFederation(t, local.Spec{WithoutHub: true, Members: 2, Nodes: 3})
	w := &world{hub: adminConfig(t, hub.Hub), members: members.Members}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.objects, err = client.New(w.hub, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	for _, member := range w.members {
		if _, err := membership.Join(t.Context(), membership.Options{Hub: w.hub, Member: adminConfig(t, member), Name: member.Name(), Cells: []string{"cell-a"}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	controllers, err := New(ctx, w.hub, Options{
		Status:         clusterstatus.Options{Interval: interval, ProbeTimeout: time.Second, SuccessThreshold: time.Second, FailureThreshold: time.Second},
		ExecutionSpace: executionspace.Options{RetryAfter: 100 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- controllers.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func adminConfig(t *testing.T, c *controlplane.ControlPlane) *rest.Config {
	t.Helper()
	config, err := c.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (w *world) typed(t *testing.T, member int) kubernetes.Interface {
	t.Helper()
	typed, err := kubernetes.NewForConfig(adminConfig(t, w.members[member]))
	if err != nil {
		t.Fatal(err)
	}
	return typed
}

func (w *world) eventually(t *testing.T, what, cluster string, done func(*clusterv1alpha1.Cluster) bool) *clusterv1alpha1.Cluster {
	t.Helper()
	var current *clusterv1alpha1.Cluster
	testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
		current = &clusterv1alpha1.Cluster{}
		if err := w.objects.Get(ctx, client.ObjectKey{Name: cluster}, current); err != nil {
			return false, err
		}
		if !done(current) {
			return false, fmt.Errorf("the status is %+v", current.Status.Conditions)
		}
		return true, nil
	})
	return current
}

func hasCondition(kind string, status metav1.ConditionStatus, reason string) func(*clusterv1alpha1.Cluster) bool {
	return func(c *clusterv1alpha1.Cluster) bool {
		found := meta.FindStatusCondition(c.Status.Conditions, kind)
		return found != nil && found.Status == status && found.Reason == reason
	}
}

func serves(groupVersion, resource string) func(*clusterv1alpha1.Cluster) bool {
	return func(c *clusterv1alpha1.Cluster) bool {
		return slices.ContainsFunc(c.Status.APIEnablements, func(e clusterv1alpha1.APIEnablement) bool {
			return e.GroupVersion == groupVersion && slices.ContainsFunc(e.Resources, func(r clusterv1alpha1.APIResource) bool { return r.Name == resource })
		})
	}
}

func (w *world) testStatus(t *testing.T) {
	for _, member := range w.members {
		cluster := w.eventually(t, member.Name()+" is ready and summed up", member.Name(), func(c *clusterv1alpha1.Cluster) bool {
			return hasCondition(names.ClusterReady, metav1.ConditionTrue, "ClusterReady")(c) && controllerutil.ContainsFinalizer(c, names.ClusterFinalizer) &&
				c.Status.NodeSummary != nil && *c.Status.NodeSummary == (clusterv1alpha1.NodeSummary{TotalNum: 3, ReadyNum: 3}) && c.Status.ResourceSummary != nil &&
				slices.ContainsFunc(c.Status.ResourceSummary.AllocatableModelings, func(m clusterv1alpha1.AllocatableModeling) bool { return m.Count > 0 })
		})
		status := cluster.Status
		if status.KubernetesVersion != kubebin.Version() {
			t.Errorf("the version is %s", status.KubernetesVersion)
		}
		if !hasCondition(names.ClusterCompleteAPIEnablements, metav1.ConditionTrue, "FullAPIEnablements")(cluster) || !serves("apps/v1", "deployments")(cluster) || !serves("v1", "pods")(cluster) {
			t.Errorf("the APIs are %+v", status.APIEnablements)
		}
		if serves("v1", "pods/exec")(cluster) {
			t.Error("subresources are among the APIs")
		}
		if cpu := status.ResourceSummary.Allocatable[corev1.ResourceCPU]; cpu.Value() != 96 {
			t.Errorf("allocatable CPU is %s", cpu.String())
		}
		// 32 cores reach grade 6, but 128Gi only grade 5.
		for _, modeling := range status.ResourceSummary.AllocatableModelings {
			if want := map[bool]int{true: 3}[modeling.Grade == 5]; modeling.Count != want {
				t.Errorf("grade %d has %d nodes, want %d", modeling.Grade, modeling.Count, want)
			}
		}
		testenv.Eventually(t, "there is a namespace for the Works of "+member.Name(), func(ctx context.Context) (bool, error) {
			err := w.objects.Get(ctx, client.ObjectKey{Name: "karmada-es-" + member.Name()}, &corev1.Namespace{})
			return err == nil, err
		})
	}
}

func (w *world) testPods(t *testing.T) {
	pod := func(name, cpu string, selector map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeSelector: selector,
			Containers:   []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}},
		}}
	}
	pods := w.typed(t, 0).CoreV1().Pods("default")
	testenv.Eventually(t, "pods can be created", func(ctx context.Context) (bool, error) { // their ServiceAccount comes late
		_, err := pods.Create(ctx, pod("fits", "1500m", nil), metav1.CreateOptions{})
		return err == nil, err
	})
	if _, err := pods.Create(t.Context(), pod("waits", "250m", map[string]string{"no": "where"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sums := func(allocated, allocating string) func(*clusterv1alpha1.Cluster) bool {
		return func(c *clusterv1alpha1.Cluster) bool {
			return c.Status.ResourceSummary.Allocated.Cpu().Cmp(resource.MustParse(allocated)) == 0 && c.Status.ResourceSummary.Allocating.Cpu().Cmp(resource.MustParse(allocating)) == 0
		}
	}
	w.eventually(t, "one pod is counted as allocated, the other as allocating", "member1", sums("1500m", "250m"))
	w.eventually(t, "nothing is counted for another member", "member2", sums("0", "0"))
	// Pods that have terminated use nothing.
	for name, ended := range map[string]corev1.PodPhase{"failed": corev1.PodFailed, "succeeded": corev1.PodSucceeded} {
		if _, err := pods.Create(t.Context(), pod(name, "125m", map[string]string{"no": "where"}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually(t, "a pod that waits is counted", "member1", sums("1500m", "375m"))
		if _, err := pods.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, ended), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		w.eventually(t, "a pod that has "+name+" is not counted", "member1", sums("1500m", "250m"))
	}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "nothing is counted once they are gone", "member1", sums("0", "0"))
}

// The ledger of a member has the location of volumes while they are bound.
func (w *world) testVolumes(t *testing.T) {
	volumes := w.typed(t, 0).CoreV1().PersistentVolumes()
	local := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}}, StorageClassName: "local",
		ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data"},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"member1-node-1"}}},
		}}}},
	}}
	class, claim := "local", &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeName: "local",
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	claim.Spec.StorageClassName = &class
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}}}},
		Volumes:    []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
	}}
	pod, err := simulate.FromTemplate("default", template)
	if err != nil {
		t.Fatal(err)
	}
	capacity := func(want int64) {
		t.Helper()
		w.untilRoom(t, pod, want)
	}
	capacity(12) // three nodes of 32 processors
	if _, err := volumes.Create(t.Context(), local, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claims := w.typed(t, 0).CoreV1().PersistentVolumeClaims("default")
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	capacity(4)
	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	capacity(12)
	if err := volumes.Delete(t.Context(), "local", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// untilRoom waits until the ledger of a member has free capacity for a number of pods.
func (w *world) untilRoom(t *testing.T, pod *simulate.Pod, want int64) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("there is capacity for %d pods with their volumes", want), func(ctx context.Context) (bool, error) {
		l := &cellplanev1alpha1.ClusterLedger{}
		if err := w.objects.Get(ctx, client.ObjectKey{Name: "member1"}, l); err != nil {
			return false, err
		}
		found := ledger.Open(l, nil, time.Now()).Capacity(pod).Total()
		return found == want, fmt.Errorf("there is capacity for %d", found)
	})
}

// The ledger of a member has the topology in which the volumes of a StatefulSet may be created, as the storage class says.
func (w *world) testStorageClasses(t *testing.T) {
	name := "nearby"
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}}}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &name}}}
	pod, err := simulate.FromStatefulSet("default", set)
	if err != nil {
		t.Fatal(err)
	}
	w.untilRoom(t, pod, 12)
	classes := w.typed(t, 0).StorageV1().StorageClasses()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.org/disks", AllowedTopologies: []corev1.TopologySelectorTerm{{
		MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelHostname, Values: []string{"member1-node-1", "member1-node-2"}}},
	}}}
	if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilRoom(t, pod, 8)
	if err := classes.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilRoom(t, pod, 12)
}

// The ledger of a member has what the quota of a namespace leaves to pods.
func (w *world) testQuotas(t *testing.T) {
	pod, err := simulate.FromTemplate("default", &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.untilRoom(t, pod, 12)
	quotas := w.typed(t, 0).CoreV1().ResourceQuotas("default")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("31")}}}
	if _, err := quotas.Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilRoom(t, pod, 3)
	if err := quotas.Delete(t.Context(), "small", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilRoom(t, pod, 12)
}

// collected returns how often the status of a cluster has been collected.
func collected(t *testing.T, cluster string) uint64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(clusterstatus.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "cluster_sync_status_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "member_cluster" && label.GetValue() == cluster {
					return metric.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return 0
}

// someRounds waits until the status of a cluster has been collected a few more times.
func someRounds(t *testing.T, cluster string) {
	t.Helper()
	since := collected(t, cluster)
	testenv.Eventually(t, "the status of "+cluster+" has been collected some times", func(context.Context) (bool, error) {
		return collected(t, cluster) >= since+3, nil
	})
}

func (w *world) testIdle(t *testing.T) {
	version := ""
	w.eventually(t, "the status of an idle member is not written for some rounds", "member2", func(c *clusterv1alpha1.Cluster) bool {
		if version == c.ResourceVersion {
			return true
		}
		version = c.ResourceVersion
		someRounds(t, "member2")
		return false
	})
}

func (w *world) testNewKind(t *testing.T) {
	definitions, err := clientset.NewForConfig(adminConfig(t, w.members[0]))
	if err != nil {
		t.Fatal(err)
	}
	preserve := true
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "apples.fruit.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "fruit.example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "apples", Singular: "apple", Kind: "Apple", ListKind: "AppleList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve},
		}}},
	}}
	if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "apples are served", "member1", serves("fruit.example.com/v1", "apples"))
	if err := definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "apples are no longer served", "member1", func(c *clusterv1alpha1.Cluster) bool { return !serves("fruit.example.com/v1", "apples")(c) })
}

func (w *world) testBrokenKind(t *testing.T) {
	services, err := aggregator.NewForConfig(adminConfig(t, w.members[0]))
	if err != nil {
		t.Fatal(err)
	}
	broken := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.broken.example.com"}, Spec: apiregistrationv1.APIServiceSpec{
		Group: "broken.example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10, InsecureSkipTLSVerify: true,
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "nobody"},
	}}
	if _, err := services.ApiregistrationV1().APIServices().Create(t.Context(), broken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster := w.eventually(t, "the list of APIs is known to be incomplete, and the member is ready", "member1", func(c *clusterv1alpha1.Cluster) bool {
		return hasCondition(names.ClusterCompleteAPIEnablements, metav1.ConditionFalse, "PartialAPIEnablements")(c) && hasCondition(names.ClusterReady, metav1.ConditionTrue, "ClusterReady")(c)
	})
	if !serves("apps/v1", "deployments")(cluster) {
		t.Error("one failing API removed others")
	}
	if message := meta.FindStatusCondition(cluster.Status.Conditions, names.ClusterCompleteAPIEnablements).Message; !strings.Contains(message, "broken.example.com/v1") {
		t.Errorf("the message is %q", message)
	}
	if err := services.ApiregistrationV1().APIServices().Delete(t.Context(), broken.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the list is complete again", "member1", hasCondition(names.ClusterCompleteAPIEnablements, metav1.ConditionTrue, "FullAPIEnablements"))
}

func (w *world) testHangingMember(t *testing.T) {
	apiServer := w.process(t, 0, kubebin.KubeAPIServer)
	if err := apiServer.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := true
	defer func() {
		if paused {
			_ = apiServer.Resume()
		}
	}()
	tainted := func(c *clusterv1alpha1.Cluster) bool {
		return slices.ContainsFunc(c.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == "cluster.karmada.io/not-ready" && taint.Effect == corev1.TaintEffectNoSchedule
		})
	}
	w.eventually(t, "the member that hangs is not reachable", "member1", hasCondition(names.ClusterReady, metav1.ConditionFalse, "ClusterNotReachable"))
	down := w.eventually(t, "it is tainted", "member1", tainted)
	if down.Status.KubernetesVersion == "" || down.Status.NodeSummary == nil || len(down.Status.APIEnablements) == 0 {
		t.Error("the status of the member was dropped")
	}
	// The other member is not affected.
	nodes := w.typed(t, 1).CoreV1().Nodes()
	if err := nodes.Delete(t.Context(), "member2-node-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the lost node of the other member is noticed", "member2", func(c *clusterv1alpha1.Cluster) bool { return c.Status.NodeSummary.TotalNum == 2 })
	w.eventually(t, "the other member is ready", "member2", func(c *clusterv1alpha1.Cluster) bool {
		return hasCondition(names.ClusterReady, metav1.ConditionTrue, "ClusterReady")(c) && !tainted(c)
	})
	if err := apiServer.Resume(); err != nil {
		t.Fatal(err)
	}
	paused = false
	w.eventually(t, "the member is ready again", "member1", hasCondition(names.ClusterReady, metav1.ConditionTrue, "ClusterReady"))
	w.eventually(t, "it is not tainted any more", "member1", func(c *clusterv1alpha1.Cluster) bool { return !tainted(c) })
}

func (w *world) process(t *testing.T, member int, program string) *process.Process {
	t.Helper()
	p, err := w.members[member].Process(program)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) testRotation(t *testing.T) {
	before := w.eventually(t, "member1 is ready", "member1", hasCondition(names.ClusterReady, metav1.ConditionTrue, "ClusterReady"))
	secrets := w.typed(t, 0).CoreV1().Secrets(names.ClusterNamespace)
	former, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := membership.Rotate(t.Context(), membership.RotateOptions{Hub: w.hub, Cluster: "member1", Grace: 2 * interval}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range former.Items {
		if _, err := secrets.Get(t.Context(), secret.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the former token %s still exists (%v)", secret.Name, err)
		}
	}
	// The API server caches a former token for some seconds; restarted, it does not.
	if err := w.process(t, 0, kubebin.KubeAPIServer).Restart(); err != nil {
		t.Fatal(err)
	}
	someRounds(t, "member1")
	after := w.eventually(t, "member1 is ready with its new token", "member1", hasCondition(names.ClusterReady, metav1.ConditionTrue, "ClusterReady"))
	if message := meta.FindStatusCondition(after.Status.Conditions, names.ClusterReady).Message; message != meta.FindStatusCondition(before.Status.Conditions, names.ClusterReady).Message {
		t.Errorf("the message is %q", message)
	}
	// Its watches continue, too.
	if err := w.typed(t, 0).CoreV1().Nodes().Delete(t.Context(), "member1-node-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "a lost node is noticed", "member1", func(c *clusterv1alpha1.Cluster) bool { return c.Status.NodeSummary.TotalNum == 2 })
}

func (w *world) testLeaving(t *testing.T) {
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "karmada-es-member2", Finalizers: []string{names.ExecutionFinalizer}}}
	if err := w.objects.Create(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	ended, options := make(chan error, 1), membership.UnjoinOptions{Hub: w.hub, Name: "member2", Member: adminConfig(t, w.members[1])}
	go func() { ended <- membership.Unjoin(context.Background(), options) }()
	testenv.Eventually(t, "the work is being deleted", func(ctx context.Context) (bool, error) {
		err := w.objects.Get(ctx, client.ObjectKeyFromObject(work), work)
		return work.DeletionTimestamp != nil, err
	})
	someRounds(t, "member2") // it is looked after until it is gone
	select {
	case err := <-ended:
		t.Fatalf("the cluster was removed before its Work: %v", err)
	default:
	}
	before := work.DeepCopy()
	controllerutil.RemoveFinalizer(work, names.ExecutionFinalizer)
	if err := w.objects.Patch(t.Context(), work, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member2"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "karmada-es-member2"}},
	} {
		if err := w.objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%s still exists (%v)", object.GetName(), err)
		}
	}
	testenv.Eventually(t, "nothing is collected any more", func(context.Context) (bool, error) { return collected(t, "member2") == 0, nil })
	typed := w.typed(t, 1)
	testenv.Eventually(t, "the namespace of the identities is gone from the member", func(ctx context.Context) (bool, error) {
		_, err := typed.CoreV1().Namespaces().Get(ctx, names.ClusterNamespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}
