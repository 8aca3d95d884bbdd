package karmada

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

var errKilled = errors.New("killed")

// plane is a control plane with a policy that places the ConfigMaps one and two in a cluster. No controller of Karmada runs: the Works are suspended
// from the start.
type plane struct {
	*testing.T
	client  client.WithWatch
	objects dynamic.Interface
	ns      string
}

func newPlane(t *testing.T, spec policyv1alpha1.PropagationSpec) *plane {
	t.Helper()
	server := testenv.SharedAPIServer(t)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	p := &plane{T: t, ns: server.Namespace(t)}
	var err error
	if p.client, err = client.NewWithWatch(server.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if p.objects, err = dynamic.NewForConfig(server.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap"}}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ExecutionNamespace(p.ns)}} // the cluster has the name of the namespace
	p.create(space, &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: "settings"}, Spec: spec})
	for _, name := range []string{"one", "two"} {
		template := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: name}}
		binding := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: names.BindingName("ConfigMap", name), Annotations: map[string]string{
			names.PropagationPolicyNamespaceAnnotation: p.ns, names.PropagationPolicyNameAnnotation: "settings",
		}}, Spec: workv1alpha2.ResourceBindingSpec{
			Resource: workv1alpha2.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: p.ns, Name: name}, Clusters: []workv1alpha2.TargetCluster{{Name: p.ns}},
			PreserveResourcesOnDeletion: spec.PreserveResourcesOnDeletion,
		}}
		if spec.Suspension != nil {
			binding.Spec.Suspension = &workv1alpha2.Suspension{Suspension: *spec.Suspension}
		}
		work := &workv1alpha1.Work{
			ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: names.WorkName("ConfigMap", p.ns, name)},
			Spec:       workv1alpha1.WorkSpec{SuspendDispatching: ptr.To(true), PreserveResourcesOnDeletion: ptr.To(true)},
		}
		p.create(template, binding, work)
		work.Status.Conditions = []metav1.Condition{{Type: names.WorkDispatching, Status: metav1.ConditionFalse, Reason: "SuspendDispatching", LastTransitionTime: metav1.Now()}}
		if err := p.client.Status().Update(t.Context(), work); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *plane) create(objects ...client.Object) {
	p.Helper()
	for _, obj := range objects {
		if err := p.client.Create(p.Context(), obj); err != nil {
			p.Fatal(err)
		}
	}
}

// read returns the workloads one and two as they are now.
func (p *plane) read() (one, two *Workload) {
	p.Helper()
	all, err := (&ControlPlane{Client: p.client, Objects: p.objects}).Read(p.Context(), p.ns)
	if err != nil {
		p.Fatal(err)
	}
	if len(all) != 2 || all[0].Template.GetName() != "one" || all[1].Template.GetName() != "two" {
		p.Fatalf("Read() = %v", all)
	}
	return all[0], all[1]
}

// settings returns what a hand-over changes.
func (p *plane) settings() map[string]any {
	p.Helper()
	one, two := p.read()
	policy := one.Policy.(*policyv1alpha1.PropagationPolicy)
	return map[string]any{
		"policy": policy.Spec, "annotations": policy.Annotations,
		"one": one.Binding.Spec, "annotations of one": one.Binding.Annotations,
		"two": two.Binding.Spec, "annotations of two": two.Binding.Annotations,
	}
}

// killed runs a step that is killed after its first write, then one that is killed after its second write, and so on until it ends.
func (p *plane) killed(step func(*ControlPlane, *Workload, *Workload) error) {
	p.Helper()
	for last := 1; last < 20; last++ {
		writes := 0
		control := &ControlPlane{Client: p.client, Objects: p.objects, Wrote: func(string) error {
			if writes++; writes == last {
				return errKilled
			}
			return nil
		}}
		one, two := p.read()
		err := step(control, one, two)
		if err == nil {
			return
		}
		if !errors.Is(err, errKilled) {
			p.Fatalf("after write %d: %v", last, err)
		}
	}
	p.Fatal("it does not end")
}

func (p *plane) suspendOne() {
	p.Helper()
	p.killed(func(c *ControlPlane, one, _ *Workload) error { return c.Suspend(p.Context(), one) })
}

// wantHandedOver checks which workloads are handed over, and that the policy is suspended if one is.
func (p *plane) wantHandedOver(wantOne, wantTwo bool) {
	p.Helper()
	one, two := p.read()
	if HandedOver(one) != wantOne || HandedOver(two) != wantTwo {
		p.Errorf("handed over are one: %v, two: %v, want %v, %v", HandedOver(one), HandedOver(two), wantOne, wantTwo)
	}
	for name, obj := range map[string]client.Object{"policy": one.Policy, "one": one.Binding, "two": two.Binding} {
		_, suspended := now(obj)
		if want := name == "policy" && (wantOne || wantTwo) || name == "one" && wantOne || name == "two" && wantTwo; want && !suspended {
			p.Errorf("%s is not suspended", name)
		}
	}
}

// A policy is suspended while one of its workloads is handed over, whatever is interrupted, and everything is as before when the last is given back.
func TestSuspendAndResume(t *testing.T) {
	for name, spec := range map[string]policyv1alpha1.PropagationSpec{
		"defaults": {},
		"settings": {PreserveResourcesOnDeletion: ptr.To(false), Suspension: &policyv1alpha1.Suspension{
			DispatchingOnClusters: &policyv1alpha1.SuspendClusters{ClusterNames: []string{"other"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, spec)
			before := p.settings()
			resume := func(pick func(one, two *Workload) *Workload, want bool) {
				t.Helper()
				p.killed(func(c *ControlPlane, one, two *Workload) error {
					waiting, err := c.Resume(t.Context(), pick(one, two))
					if err == nil && waiting != want {
						t.Errorf("Resume() = %v, want %v", waiting, want)
					}
					return err
				})
			}
			first, second := func(one, _ *Workload) *Workload { return one }, func(_, two *Workload) *Workload { return two }

			p.suspendOne()
			p.wantHandedOver(true, false)
			one, _ := p.read()
			if original, err := Original(one.Policy); err != nil || cmp.Diff(before["policy"], original.(*policyv1alpha1.PropagationPolicy).Spec) != "" {
				t.Errorf("Original() = %+v, %v, want %+v", original, err, before["policy"])
			}
			p.killed(func(c *ControlPlane, _, two *Workload) error { return c.Suspend(t.Context(), two) })
			p.wantHandedOver(true, true)
			resume(first, true)
			p.wantHandedOver(false, true)
			p.suspendOne()
			p.wantHandedOver(true, true)
			resume(second, true)
			p.wantHandedOver(true, false)
			resume(first, false)
			p.wantHandedOver(false, false)
			if diff := cmp.Diff(before, p.settings()); diff != "" {
				t.Errorf("it is not as before (-before +now):\n%s", diff)
			}
		})
	}
}

// A workload that is handed over while the last other one of its policy is given back keeps the policy suspended.
func TestSuspendDuringResume(t *testing.T) {
	p := newPlane(t, policyv1alpha1.PropagationSpec{})
	p.suspendOne()
	one, two := p.read()
	other := &ControlPlane{Client: p.client, Objects: p.objects}
	suspended := false
	slow := interceptor.NewClient(p.client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
		err := c.Get(ctx, key, obj, options...)
		if key.Name == two.Binding.Name && !suspended {
			suspended = true
			if err := other.Suspend(ctx, two); err != nil {
				t.Error(err)
			}
		}
		return err
	}})
	waiting, err := (&ControlPlane{Client: slow, Objects: p.objects}).Resume(t.Context(), one)
	if err != nil || !waiting {
		t.Errorf("Resume() = %v, %v, want it to wait for the other workload", waiting, err)
	}
	p.wantHandedOver(false, true)
}

func TestSuspendIsNotConfirmed(t *testing.T) {
	p := newPlane(t, policyv1alpha1.PropagationSpec{})
	work := &workv1alpha1.Work{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: names.ExecutionNamespace(p.ns), Name: names.WorkName("ConfigMap", p.ns, "one")}, work); err != nil {
		t.Fatal(err)
	}
	work.Status.Conditions[0].Status = metav1.ConditionTrue
	if err := p.client.Status().Update(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	polls := 0
	impatient := interceptor.NewClient(p.client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
		if _, is := obj.(*workv1alpha1.Work); is {
			if polls++; polls == 2 {
				defer cancel()
			}
		}
		return c.Get(ctx, key, obj, options...)
	}})
	one, _ := p.read()
	err := (&ControlPlane{Client: impatient, Objects: p.objects}).Suspend(ctx, one)
	if err == nil || !strings.Contains(err.Error(), "karmada has not suspended dispatching to cluster "+p.ns) {
		t.Errorf("Suspend() = %v", err)
	}
	p.wantHandedOver(true, false)
}
