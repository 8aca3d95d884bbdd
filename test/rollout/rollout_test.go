package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/testenv"
)

const minReadySeconds = 1

// workload is a Deployment whose replicas are divided among the members.
type workload struct {
	t       *testing.T
	ns      string
	pods    *watcher
	through ctrlclient.Client // nil means the cell
	slow    readiness

	surge, unavailable intstr.IntOrString
}

// readiness says how long pods run before they are ready: for a time between the two, which the simulated nodes draw. The zero value is at once.
type readiness struct{ least, most time.Duration }

// annotations are for the pods.
func (r readiness) annotations() map[string]string {
	if r == (readiness{}) {
		return nil
	}
	return map[string]string{"pod-ready.stage.kwok.x-k8s.io/delay": r.least.String(), "pod-ready.stage.kwok.x-k8s.io/jitter-delay": r.most.String()}
}

// newWorkload creates a Deployment and waits until it is available.
func newWorkload(t *testing.T, replicas int32, maxSurge, maxUnavailable intstr.IntOrString) *workload {
	t.Helper()
	return newSlowWorkload(t, readiness{}, replicas, maxSurge, maxUnavailable)
}

// newSlowWorkload creates a Deployment whose pods take a while to become ready, and waits until it is available.
func newSlowWorkload(t *testing.T, slow readiness, replicas int32, maxSurge, maxUnavailable intstr.IntOrString) *workload {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	w := &workload{t: t, slow: slow}
	w.create(ns)
	w.ns = ns.Name
	w.begin(replicas, maxSurge, maxUnavailable)
	return w
}

// begin creates the Deployment in the namespace of the workload and waits until it is available.
func (w *workload) begin(replicas int32, maxSurge, maxUnavailable intstr.IntOrString) {
	w.t.Helper()
	w.surge, w.unavailable = maxSurge, maxUnavailable
	labels := map[string]string{"app": "web"}
	w.create(w.divided("Deployment"), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, MinReadySeconds: minReadySeconds, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &maxSurge, MaxUnavailable: &maxUnavailable}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: w.slow.annotations()},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "c", Image: image(1)}}},
		},
	}})
	w.finished(1, replicas)
}

// bounds returns how many pods must be available, and how many there may be, with any of some numbers of replicas.
func (w *workload) bounds(replicas ...int32) (least, most int) {
	w.t.Helper()
	least = math.MaxInt
	for _, n := range replicas {
		b, err := rollout.DeploymentBounds(int(n), &w.surge, &w.unavailable)
		if err != nil {
			w.t.Fatal(err)
		}
		least, most = min(least, b.Replicas-b.Unavailable), max(most, b.Replicas+b.Surge)
	}
	return least, most
}

// watch begins to watch the pods of the workload. Its bounds hold from now on.
func (w *workload) watch(replicas int32) {
	w.t.Helper()
	least, most := w.bounds(replicas)
	w.pods = watchPods(w.t, w.ns, minReadySeconds*time.Second, least, most)
	w.pods.slow = w.slow != (readiness{})
}

// allow changes the bounds to those of other replicas. While their number changes, these are the old and the new one.
func (w *workload) allow(replicas ...int32) {
	w.t.Helper()
	w.pods.allow(w.bounds(replicas...))
}

// api is where the workload is written and read.
func (w *workload) api() ctrlclient.Client {
	if w.through != nil {
		return w.through
	}
	return cell
}

// divided returns a policy that divides the replicas of a kind equally.
func (w *workload) divided(kind string) *policyv1alpha1.PropagationPolicy {
	return &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "divided"}, Spec: policyv1alpha1.PropagationSpec{
		ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: kind}},
		Placement: policyv1alpha1.Placement{ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{
			ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
		}},
	}}
}

func image(version int) string { return fmt.Sprintf("registry.example/app:%d", version) }

func (w *workload) create(objects ...ctrlclient.Object) {
	w.t.Helper()
	for _, obj := range objects {
		if err := w.api().Create(w.t.Context(), obj); err != nil {
			w.t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
		}
	}
}

func (w *workload) ref() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "web"}}
}

// edit changes the template.
func (w *workload) edit(change func(*appsv1.Deployment)) {
	w.t.Helper()
	testenv.Eventually(w.t, "the template can be changed", func(ctx context.Context) (bool, error) {
		d := w.ref()
		if err := w.api().Get(ctx, ctrlclient.ObjectKeyFromObject(d), d); err != nil {
			return false, err
		}
		change(d)
		err := w.api().Update(ctx, d)
		return err == nil, err
	})
}

func (w *workload) setImage(version int) {
	w.t.Helper()
	w.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image(version) })
}

// scale writes the scale of the Deployment, as autoscalers do.
func (w *workload) scale(replicas int32) {
	w.t.Helper()
	testenv.Eventually(w.t, "the template can be scaled", func(ctx context.Context) (bool, error) {
		scale := &autoscalingv1.Scale{}
		if err := w.api().SubResource("scale").Get(ctx, w.ref(), scale); err != nil {
			return false, err
		}
		scale.Spec.Replicas = replicas
		err := w.api().SubResource("scale").Update(ctx, w.ref(), ctrlclient.WithSubResourceBody(scale))
		return err == nil, err
	})
}

// finished waits until the template reports that all pods are updated and available, as kubectl rollout status does. Then it checks that they are.
func (w *workload) finished(version int, replicas int32) {
	w.t.Helper()
	testenv.Eventually(w.t, fmt.Sprintf("the rollout of version %d is reported as finished", version), func(ctx context.Context) (bool, error) {
		d := w.ref()
		if err := w.api().Get(ctx, ctrlclient.ObjectKeyFromObject(d), d); err != nil {
			return false, err
		}
		s := &d.Status
		done := s.ObservedGeneration == d.Generation && s.UpdatedReplicas == replicas && s.Replicas == replicas && s.AvailableReplicas == replicas
		return done, fmt.Errorf("generation %d: %+v\n%s", d.Generation, s, w.describe())
	})
	updated := 0
	for name := range members {
		updated += w.inMember(name)[image(version)]
	}
	if updated != int(replicas) {
		w.t.Errorf("%d pods have version %d, want %d:\n%s", updated, version, replicas, w.describe())
	}
}

// placed waits until each cluster has the replicas that the scheduler has placed there. While some are moved, all may be updated and available before that.
func (w *workload) placed() {
	w.t.Helper()
	testenv.Eventually(w.t, "each cluster has its share", func(ctx context.Context) (bool, error) {
		for _, target := range w.binding().Spec.Clusters {
			d := w.ref()
			if err := members[target.Name].Get(ctx, ctrlclient.ObjectKeyFromObject(d), d); err != nil {
				return false, err
			}
			if s := &d.Status; *d.Spec.Replicas != target.Replicas || s.ObservedGeneration != d.Generation || s.Replicas != target.Replicas || s.AvailableReplicas != target.Replicas {
				return false, errors.New(w.describe())
			}
		}
		return true, nil
	})
}

// inMember returns the pods of a member by image.
func (w *workload) inMember(name string) map[string]int {
	w.t.Helper()
	var list corev1.PodList
	if err := members[name].List(w.t.Context(), &list, ctrlclient.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return imagesOf(pods)
}

// begun waits until some pods, but not all, have a version.
func (w *workload) begun(version int) {
	w.t.Helper()
	testenv.Eventually(w.t, fmt.Sprintf("a pod of version %d exists", version), func(context.Context) (bool, error) {
		for name := range members {
			if w.inMember(name)[image(version)] > 0 {
				return true, nil
			}
		}
		return false, nil
	})
}

// describe says what the ledger and the members have.
func (w *workload) describe() string {
	text := ""
	binding := w.binding()
	text += fmt.Sprintf("clusters %v, evictions %v, ledger %s\n", binding.Spec.Clusters, binding.Spec.GracefulEvictionTasks, binding.Annotations[names.RolloutAnnotation])
	for name, member := range members {
		d := w.ref()
		if err := member.Get(context.Background(), ctrlclient.ObjectKeyFromObject(d), d); err != nil {
			text += fmt.Sprintf("%s: %v\n", name, err)
			continue
		}
		text += fmt.Sprintf("%s: command %s, %d replicas, strategy %v, paused %t, image %s, generation %d, status %+v\n", name, d.Annotations[names.RolloutCommandAnnotation],
			*d.Spec.Replicas, d.Spec.Strategy.RollingUpdate, d.Spec.Paused, d.Spec.Template.Spec.Containers[0].Image, d.Generation, d.Status)
	}
	return text
}

func (w *workload) binding() *workv1alpha2.ResourceBinding {
	binding := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "web-deployment"}}
	_ = w.api().Get(context.Background(), ctrlclient.ObjectKeyFromObject(binding), binding)
	return binding
}

// annotated waits until an annotation of the binding says something.
func (w *workload) annotated(what, annotation string, says func(string) bool) {
	w.t.Helper()
	testenv.Eventually(w.t, "the binding says "+what, func(ctx context.Context) (bool, error) {
		binding := &workv1alpha2.ResourceBinding{}
		if err := w.api().Get(ctx, ctrlclient.ObjectKey{Namespace: w.ns, Name: "web-deployment"}, binding); err != nil {
			return false, err
		}
		return says(binding.Annotations[annotation]), errors.New(binding.Annotations[annotation])
	})
}

// The bounds of the template hold for all members together: in an update, in an update during an update while the engine is killed, while replicas change, and
// while a cluster is left. Every rollout finishes.
func TestFederatedRollout(t *testing.T) {
	kill := startEngine(t)
	w := newWorkload(t, 9, intstr.FromInt32(1), intstr.FromInt32(1))
	if ledger := w.binding().Annotations[names.RolloutAnnotation]; ledger != "" {
		t.Errorf("a new Deployment has a ledger already: %s", ledger)
	}
	w.pods = watchPods(t, w.ns, minReadySeconds*time.Second, 8, 10)

	traced := w.pods.trace(image(2))
	w.setImage(2)
	w.finished(2, 9)
	w.pods.draw(t, traced())
	w.pods.held("an update")

	// The engine dies in the middle, and the template changes again before the next engine has told all members.
	w.setImage(3)
	w.begun(3)
	kill()
	w.setImage(4)
	kill = startEngine(t)
	w.begun(4)
	kill()
	startEngine(t)
	w.finished(4, 9)
	w.pods.held("an update during an update")

	// Scaled out in the middle. Until all new pods are there, the old number may be what holds.
	w.setImage(5)
	w.begun(5)
	w.pods.allow(8, 13)
	w.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(12)) })
	w.finished(5, 12)
	w.pods.held("scaling out during an update")

	// A cluster is left in the middle.
	w.pods.allow(11, 13)
	w.setImage(6)
	w.begun(6)
	w.leave("member3")
	w.finished(6, 12)
	w.pods.held("leaving a cluster during an update")
	w.left("member3")
}

// While a rollout is paused, no cluster begins. A cluster that is evicted is replaced nevertheless, at once, and keeps its pods until then.
func TestEvictionFromPausedRollout(t *testing.T) {
	startEngine(t)
	w := newWorkload(t, 9, intstr.FromInt32(0), intstr.FromInt32(1))
	w.pods = watchPods(t, w.ns, minReadySeconds*time.Second, 8, 9)
	w.setImage(2)
	w.begun(2)
	w.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	testenv.Eventually(t, "the cluster that has begun is paused, or at rest", func(context.Context) (bool, error) {
		for name := range members {
			d := w.in(name)
			if begun := d.Spec.Template.Spec.Containers[0].Image == image(2); begun && !d.Spec.Paused && (d.Status.UpdatedReplicas < *d.Spec.Replicas || d.Status.ObservedGeneration < d.Generation) {
				return false, nil
			}
		}
		return true, nil
	})
	w.pods.held("a paused update")
	if w.in("member1").Spec.Template.Spec.Containers[0].Image != image(2) || w.in("member3").Spec.Template.Spec.Containers[0].Image != image(1) {
		t.Errorf("maxUnavailable is 1, so that the clusters are updated one after the other:\n%s", w.describe())
	}

	w.annotated("what member3 waits for", names.RolloutWaitsAnnotation, func(waits string) bool { return strings.Contains(waits, `"member3":"the rollout is paused"`) })
	w.pods.allow(8, 12)
	binding := w.binding()
	testenv.Eventually(t, "the binding can be changed", func(ctx context.Context) (bool, error) {
		if err := w.api().Get(ctx, ctrlclient.ObjectKeyFromObject(binding), binding); err != nil {
			return false, err
		}
		binding.Spec.Clusters = slices.DeleteFunc(binding.Spec.Clusters, func(target workv1alpha2.TargetCluster) bool { return target.Name == "member3" })
		binding.Spec.GracefulEvictionTasks = []workv1alpha2.GracefulEvictionTask{{
			FromCluster: "member3", PurgeMode: policyv1alpha1.PurgeModeGracefully, Reason: "Test", Producer: "Test", CreationTimestamp: ptr.To(metav1.Now()),
		}}
		err := w.api().Update(ctx, binding)
		return err == nil, err
	})
	w.left("member3")
	if total := *w.in("member1").Spec.Replicas + *w.in("member2").Spec.Replicas; total != 9 {
		t.Errorf("the others have %d replicas:\n%s", total, w.describe())
	}
	w.pods.held("an eviction during a paused update")
	w.edit(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	w.finished(2, 9)
	w.pods.held("the rest of the update")
	w.annotated("after the update, that no cluster waits", names.RolloutWaitsAnnotation, func(waits string) bool { return waits == "" })
}

// A changed override is an update, too.
func TestOverrideIsRolledOut(t *testing.T) {
	startEngine(t)
	w := newWorkload(t, 9, intstr.FromInt32(1), intstr.FromInt32(1))
	w.pods = watchPods(t, w.ns, minReadySeconds*time.Second, 8, 10)
	w.create(&policyv1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "image"}, Spec: policyv1alpha1.OverrideSpec{
		ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}},
		OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: policyv1alpha1.Overriders{
			ImageOverrider: []policyv1alpha1.ImageOverrider{{Component: policyv1alpha1.ImageComponentTag, Operator: policyv1alpha1.OverriderOpReplace, Value: "7"}},
		}}},
	}})
	testenv.Eventually(t, "all pods have the image of the override", func(context.Context) (bool, error) {
		return w.inMember("member1")[image(7)] == 3 && w.inMember("member2")[image(7)] == 3 && w.inMember("member3")[image(7)] == 3, nil
	})
	w.pods.held("a changed override")
}

// The engine can stop to plan at any time, and begin again.
func TestPlanningIsTurnedOff(t *testing.T) {
	kill := startEngine(t)
	w := newWorkload(t, 6, intstr.FromInt32(1), intstr.FromInt32(0))
	w.setImage(2)
	w.begun(2)
	kill()
	kill = startEngine(t, withoutPlan)
	w.finished(2, 6)
	w.annotated("that there is no ledger", names.RolloutAnnotation, func(ledger string) bool { return ledger == "" })
	w.setImage(3)
	w.finished(3, 6)
	kill()
	startEngine(t)
	w.pods = watchPods(t, w.ns, minReadySeconds*time.Second, 6, 7)
	w.setImage(4)
	w.finished(4, 6)
	w.pods.held("an update after that")
}

// An update waits for a member that is away, also if the template changes meanwhile.
func TestMemberIsAway(t *testing.T) {
	startEngine(t)
	w := newWorkload(t, 9, intstr.FromInt32(1), intstr.FromInt32(1))
	w.pods = watchPods(t, w.ns, minReadySeconds*time.Second, 8, 10)
	w.setImage(2)
	w.begun(2)
	server, err := federation.Process("member3/" + kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Resurrect() })
	w.setImage(3)
	testenv.Eventually(t, "a pod of the newest version exists in another member", func(context.Context) (bool, error) {
		return w.inMember("member1")[image(3)]+w.inMember("member2")[image(3)] > 0, nil
	})
	if err := server.Resurrect(); err != nil {
		t.Fatal(err)
	}
	w.finished(3, 9)
	w.pods.held("an update while a member is away")
}

// By LastObserved, the others are updated while a member is away: its pods count as available. By default they would wait, because maxUnavailable is 1.
func TestUnreachableCountsAsObserved(t *testing.T) {
	startEngine(t)
	w := newWorkload(t, 9, intstr.FromInt32(0), intstr.FromInt32(1))
	w.create(&cellplanev1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "observed"}, Spec: cellplanev1alpha1.RolloutPolicySpec{
		ResourceSelectors:   []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}},
		UnreachableClusters: cellplanev1alpha1.UnreachableLastObserved,
	}})
	w.pods = watchPods(t, w.ns, minReadySeconds*time.Second, 8, 9)
	server, err := federation.Process("member3/" + kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Resurrect() })
	w.setImage(2)
	w.annotated("what member3 waits for", names.RolloutWaitsAnnotation, func(waits string) bool {
		return strings.Contains(waits, `"member3":"waits until the cluster answers"`)
	})
	testenv.Eventually(t, "the others are updated", func(context.Context) (bool, error) {
		return w.inMember("member1")[image(2)] == 3 && w.inMember("member2")[image(2)] == 3, errors.New(w.describe())
	})
	w.annotated("that member3 waits still", names.RolloutWaitsAnnotation, func(waits string) bool { return strings.Contains(waits, "member3") })
	if err := server.Resurrect(); err != nil {
		t.Fatal(err)
	}
	w.finished(2, 9)
	w.pods.held("an update while a member is away")
}

// left waits until a member has neither Work nor copy.
func (w *workload) left(name string) {
	w.t.Helper()
	testenv.Eventually(w.t, name+" has neither Work nor copy", func(ctx context.Context) (bool, error) {
		work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(name), Name: names.WorkName("Deployment", w.ns, "web")}}
		if err := w.api().Get(ctx, ctrlclient.ObjectKeyFromObject(work), work); !apierrors.IsNotFound(err) {
			return false, errors.Join(err, errors.New("there is a Work\n"+w.describe()))
		}
		err := members[name].Get(ctx, ctrlclient.ObjectKeyFromObject(w.ref()), w.ref())
		return apierrors.IsNotFound(err), err
	})
}

// in returns the copy in a member.
func (w *workload) in(name string) *appsv1.Deployment {
	w.t.Helper()
	d := w.ref()
	if err := members[name].Get(w.t.Context(), ctrlclient.ObjectKeyFromObject(d), d); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// leave removes a member from the placement.
func (w *workload) leave(name string) {
	w.t.Helper()
	w.place(func(placement *policyv1alpha1.Placement) {
		placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ExcludeClusters: []string{name}}
	})
}

// place changes the placement.
func (w *workload) place(change func(*policyv1alpha1.Placement)) {
	w.t.Helper()
	policy := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "divided"}}
	testenv.Eventually(w.t, "the policy can be changed", func(ctx context.Context) (bool, error) {
		if err := w.api().Get(ctx, ctrlclient.ObjectKeyFromObject(policy), policy); err != nil {
			return false, err
		}
		change(&policy.Spec.Placement)
		err := w.api().Update(ctx, policy)
		return err == nil, err
	})
}
