package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/cellplane/cellplane/api/apps/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv"
)

// While every process of the federation is stopped, people repair a workload in a member, with an annotation and without. The federation is started again and
// gets another template: it overwrites neither.
func testEmergency(w *world) {
	const ns, cluster = "emergency", "member1"
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: ns, Name: name} }
	workloads := []string{"annotated", "written"}
	if err := w.federation.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		w.Fatal(err)
	}
	policy := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all", Annotations: map[string]string{names.AutoEntryAnnotation: "1h"}}}
	policy.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}}
	policy.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: []string{cluster}}
	objects := []client.Object{policy}
	for _, name := range workloads {
		labels, replicas := map[string]string{"app": name}, int32(1)
		objects = append(objects, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/app:1"}}}},
		}})
	}
	for _, obj := range objects {
		testenv.Eventually(w.T, "it is created", func(ctx context.Context) (bool, error) { // the namespace needs a moment to reach all cells
			err := w.federation.Create(ctx, obj)
			return err == nil, err
		})
	}
	inMember := func(ctx context.Context, name string) (*appsv1.Deployment, error) {
		d := &appsv1.Deployment{}
		return d, w.members[cluster].Get(ctx, key(name), d)
	}
	testenv.Eventually(w.T, "they run", func(ctx context.Context) (bool, error) {
		for _, name := range workloads {
			if d, err := inMember(ctx, name); err != nil || d.Status.ReadyReplicas != 1 {
				return false, err
			}
		}
		return true, nil
	})

	// 1. Stop the federation: all its processes at the same time.
	before := w.federationProcesses()
	for name, pid := range before {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			w.Fatalf("stopping %s: %v", name, err)
		}
	}

	// 2. Repair what runs in the member.
	for _, name := range workloads {
		testenv.Eventually(w.T, "people can write", func(ctx context.Context) (bool, error) {
			d, err := inMember(ctx, name)
			if err != nil {
				return false, err
			}
			if name == "annotated" {
				metav1.SetMetaDataAnnotation(&d.ObjectMeta, names.EntryAnnotation, "open")
			}
			d.Spec.Template.Spec.Containers[0].Image = "registry.example/app:repaired"
			err = w.members[cluster].Update(ctx, d, client.FieldOwner("kubectl-edit"))
			return err == nil, err
		})
	}

	// 3. Start it again: the stopped processes are killed, and others take their place.
	for name, pid := range before {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			w.Fatalf("killing %s: %v", name, err)
		}
	}
	testenv.Eventually(w.T, "the federation runs again", func(context.Context) (bool, error) {
		for name, pid := range w.federationProcesses() {
			if pid == 0 || pid == before[name] {
				return false, fmt.Errorf("%s has the process %d", name, pid)
			}
		}
		return true, nil
	})
	for _, name := range workloads {
		testenv.Eventually(w.T, "the template is changed", func(ctx context.Context) (bool, error) {
			d := &appsv1.Deployment{}
			if err := w.federation.Get(ctx, key(name), d); err != nil {
				return false, err
			}
			d.Spec.Template.Spec.Containers[0].Image = "registry.example/app:2"
			err := w.federation.Update(ctx, d)
			return err == nil, err
		})
	}

	w.run("kubectl", "scale", "deployment/annotated", "-n", ns, "--replicas", "2")
	w.rebalance(ns, workloads)

	// 4. The federation knows, and wants its own; the member has what people wrote.
	wants := map[string]string{"annotated": `"replicas":2`, "written": `"replicas":1`}
	for _, name := range workloads {
		testenv.Eventually(w.T, "the federation holds back for "+name, func(ctx context.Context) (bool, error) {
			work := &workv1alpha1.Work{}
			if err := w.federation.Get(ctx, client.ObjectKey{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName("Deployment", ns, name)}, work); err != nil {
				return false, err
			}
			applied := meta.FindStatusCondition(work.Status.Conditions, names.WorkApplied)
			return len(work.Spec.Workload.Manifests) == 1 && strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), "registry.example/app:2") &&
				strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), wants[name]) && applied != nil && applied.Reason == names.ReasonEntryOpen, fmt.Errorf("its conditions are %+v", work.Status.Conditions)
		})
		d, err := inMember(w.Context(), name)
		if err != nil {
			w.Fatal(err)
		}
		if image := d.Spec.Template.Spec.Containers[0].Image; image != "registry.example/app:repaired" || *d.Spec.Replicas != 1 {
			w.Errorf("%s has %d replicas of the image %s", name, *d.Spec.Replicas, image)
		}
	}

	// 5. One repair is kept for all clusters, the other is discarded.
	w.run("entry", "close", "deploy/annotated", "-n", ns, "--cluster", cluster, "--keep", "--into", "template")
	w.run("entry", "close", "deploy/written", "-n", ns, "--cluster", cluster, "--discard")
	testenv.Eventually(w.T, "what was discarded is set back", func(ctx context.Context) (bool, error) {
		d, err := inMember(ctx, "written")
		return err == nil && d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2", err
	})
	kept, template := &appsv1.Deployment{}, &appsv1.Deployment{}
	if err := errors.Join(w.members[cluster].Get(w.Context(), key("annotated"), kept), w.federation.Get(w.Context(), key("annotated"), template)); err != nil {
		w.Fatal(err)
	}
	for _, d := range []*appsv1.Deployment{kept, template} {
		if image := d.Spec.Template.Spec.Containers[0].Image; image != "registry.example/app:repaired" || *d.Spec.Replicas != 1 {
			w.Errorf("what was kept has %d replicas of the image %s", *d.Spec.Replicas, image)
		}
	}

	// 6. The namespace is deleted in the federation. What is open stays until it is closed, with the namespace that it is in.
	w.run("entry", "open", "deploy/written", "-n", ns, "--cluster", cluster)
	w.run("kubectl", "delete", "namespace", ns, "--wait=false")
	gone := func(ctx context.Context, c client.Client, obj client.Object) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		return apierrors.IsNotFound(err), err
	}
	testenv.Eventually(w.T, "what is not open is deleted", func(ctx context.Context) (bool, error) {
		return gone(ctx, w.members[cluster], &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "annotated"}})
	})
	testenv.Eventually(w.T, "the engine holds back the deletion", func(ctx context.Context) (bool, error) {
		work := &workv1alpha1.Work{}
		err := w.federation.Get(ctx, client.ObjectKey{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName("Deployment", ns, "written")}, work)
		applied := meta.FindStatusCondition(work.Status.Conditions, names.WorkApplied)
		return err == nil && work.DeletionTimestamp != nil && applied != nil && applied.Reason == names.ReasonEntryOpen, err
	})
	namespace := &corev1.Namespace{}
	d, err := inMember(w.Context(), "written")
	if err := errors.Join(err, w.members[cluster].Get(w.Context(), client.ObjectKey{Name: ns}, namespace)); err != nil {
		w.Fatal(err)
	}
	if d.DeletionTimestamp != nil || namespace.DeletionTimestamp != nil {
		w.Errorf("it is deleted in the member at %v, and its namespace at %v", d.DeletionTimestamp, namespace.DeletionTimestamp)
	}
	w.run("entry", "close", "deploy/written", "-n", ns, "--cluster", cluster, "--discard")
	for what, c := range map[string]client.Client{"the federation": w.federation, cluster: w.members[cluster]} {
		testenv.Eventually(w.T, "the namespace is gone in "+what, func(ctx context.Context) (bool, error) {
			return gone(ctx, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		})
	}
}

// rebalance has Deployments scheduled again.
func (w *world) rebalance(ns string, workloads []string) {
	w.Helper()
	rebalancer := &appsv1alpha1.WorkloadRebalancer{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	for _, name := range workloads {
		rebalancer.Spec.Workloads = append(rebalancer.Spec.Workloads, appsv1alpha1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: ns, Name: name})
	}
	if err := w.federation.Create(w.Context(), rebalancer); err != nil {
		w.Fatal(err)
	}
	testenv.Eventually(w.T, "it is rebalanced", func(ctx context.Context) (bool, error) {
		err := w.federation.Get(ctx, client.ObjectKeyFromObject(rebalancer), rebalancer)
		return err == nil && rebalancer.Status.FinishTime != nil, errors.Join(err, fmt.Errorf("its status is %+v", rebalancer.Status))
	})
}

// federationProcesses returns the processes of the federation by name, and not those of members.
func (w *world) federationProcesses() map[string]int {
	w.Helper()
	report := w.report()
	found := map[string]int{}
	for i := range report.Processes {
		name := report.Processes[i].Name
		if !slices.ContainsFunc(w.memberNames, func(member string) bool { return strings.HasPrefix(name, member+"/") }) {
			found[name] = report.Processes[i].PID
		}
	}
	if len(found) == 0 {
		w.Fatalf("the federation has no processes: %+v", report)
	}
	return found
}
