package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

const (
	namespace = "bench"
	// lost is the cluster that is lost; the others take over its workloads.
	lost   = "lost"
	others = 9
)

func other(cluster string) bool { return cluster != lost }

// run measures step by step.
func (c *measuredCell) run(ctx context.Context, o *options, out io.Writer) error {
	if err := c.prepare(ctx); err != nil {
		return fmt.Errorf("preparing the cell: %w", err)
	}
	fmt.Fprintf(out, "\nIn a real cell, one hub, %d clusters with ledgers\t\t\t\t\n", others+1)
	if err := c.alone(ctx, o, out); err != nil {
		return err
	}
	stop := c.startEngine(ctx)
	defer stop()
	report := func(what string, n int, bindings, works time.Duration) {
		fmt.Fprintf(out, "%s\t%d\t%s\t%.0f/s\t\n", what, n, bindings.Round(time.Millisecond), float64(n)/bindings.Seconds())
		fmt.Fprintf(out, "… with their Works\t%d\t%s\t%.0f/s\t\n", n, works.Round(time.Millisecond), float64(n)/works.Seconds())
		c.spent(out, n)
	}

	// 1. Bindings wait because no cluster is eligible. Then all clusters are.
	if err := c.create(ctx, "wait", o.bindings, o.writers); err != nil {
		return err
	}
	if err := c.untilRefused(ctx, o.bindings); err != nil {
		return err
	}
	began := c.begin()
	if err := c.open(ctx); err != nil {
		return err
	}
	bindings, works, err := c.until(ctx, began, "wait-", o.bindings, other)
	if err != nil {
		return fmt.Errorf("placing waiting bindings: %w", err)
	}
	report("waiting bindings placed", o.bindings, bindings, works)

	// 2. Workloads are created, all in one cluster.
	began = c.begin()
	var creating errgroup.Group
	creating.Go(func() error { return c.create(ctx, "move", o.workloads, o.writers) })
	bindings, works, err = c.until(ctx, began, "move-", o.workloads, func(cluster string) bool { return cluster == lost })
	if err := creating.Wait(); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("placing new workloads: %w", err)
	}
	report("new workloads placed", o.workloads, bindings, works)

	// 3. The cluster is lost.
	began = c.begin()
	if err := c.taint(ctx, lost, corev1.Taint{Key: "lost", Effect: corev1.TaintEffectNoExecute, TimeAdded: ptr.To(metav1.Now())}); err != nil {
		return err
	}
	bindings, works, err = c.until(ctx, began, "move-", o.workloads, other)
	if err != nil {
		return fmt.Errorf("moving the workloads of the lost cluster: %w", err)
	}
	report("workloads of a lost cluster placed elsewhere", o.workloads, bindings, works)
	return nil
}

// begin starts to count the cost of a step.
func (c *measuredCell) begin() time.Time {
	c.writes.take(1)
	c.used = c.cpu()
	return time.Now()
}

// spent prints the cost of a step per binding.
func (c *measuredCell) spent(out io.Writer, n int) {
	fmt.Fprintf(out, "writes of the engine for each: %s\n", c.writes.take(n))
	fmt.Fprintf(out, "CPU time for each: %s\n", difference(c.used, c.cpu(), n))
}

// difference returns the CPU time that each process used, per binding.
func difference(before, after map[string]time.Duration, n int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if took := (after[name] - before[name]) / time.Duration(n); took > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", name, took.Round(10*time.Microsecond)))
		}
	}
	return strings.Join(parts, ", ")
}

func (c *measuredCell) until(ctx context.Context, began time.Time, prefix string, n int, wanted func(string) bool) (bindings, works time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return c.members.until(ctx, began, prefix, n, wanted)
}

func member(i int) string { return fmt.Sprint("member-", i) }

// closed is the taint that excludes a cluster.
func closed() corev1.Taint {
	return corev1.Taint{Key: "closed", Effect: corev1.TaintEffectNoSchedule}
}

// place builds a placement that chooses a cluster of the first term with capacity.
func place(p *policyv1alpha1.Placement, groups ...policyv1alpha1.ClusterAffinityTerm) {
	p.ClusterAffinities = groups
	p.SpreadConstraints = []policyv1alpha1.SpreadConstraint{{SpreadByField: policyv1alpha1.SpreadByFieldCluster, MinGroups: 1, MaxGroups: 1}}
	p.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceAggregated,
	}
}

// prepare creates clusters, all tainted except for the one that will be lost, and policies.
func (c *measuredCell) prepare(ctx context.Context) error {
	all := []string{lost}
	for i := range others {
		all = append(all, member(i))
	}
	if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	for _, name := range all {
		cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
		cluster.Spec.SyncMode, cluster.Spec.Region = clusterv1alpha1.Pull, "region"
		if name != lost {
			cluster.Spec.Taints = []corev1.Taint{closed()}
		}
		if err := c.client.Create(ctx, cluster); err != nil {
			return err
		}
		c.members.add(name)
	}
	for prefix, affinities := range map[string][]policyv1alpha1.ClusterAffinityTerm{
		"wait": {{AffinityName: "others", ClusterAffinity: policyv1alpha1.ClusterAffinity{ExcludeClusters: []string{lost}}}},
		"move": {
			{AffinityName: "first", ClusterAffinity: policyv1alpha1.ClusterAffinity{ClusterNames: []string{lost}}},
			{AffinityName: "others", ClusterAffinity: policyv1alpha1.ClusterAffinity{ExcludeClusters: []string{lost}}},
		},
	} {
		p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: prefix}}
		p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"step": prefix}}}}
		place(&p.Spec.Placement, affinities...)
		if err := c.client.Create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// create creates Deployments with several writers.
func (c *measuredCell) create(ctx context.Context, step string, n, writers int) error {
	group, ctx := errgroup.WithContext(ctx)
	for writer := range writers {
		group.Go(func() error {
			for i := writer; i < n; i += writers {
				if err := c.client.Create(ctx, deployment(step, i)); err != nil {
					return fmt.Errorf("creating a Deployment: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func deployment(step string, i int) *appsv1.Deployment {
	name := fmt.Sprint(step, "-", i)
	labels := map[string]string{"app": name, "step": step}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1", Resources: corev1.ResourceRequirements{Requests: request()}}}},
		}},
	}
}

// untilRefused waits until all bindings are unschedulable, so that only placing them is measured.
func (c *measuredCell) untilRefused(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		var list workv1alpha2.ResourceBindingList
		if err := c.client.List(ctx, &list, ctrlclient.InNamespace(namespace)); err != nil {
			return fmt.Errorf("waiting until bindings are refused: %w", err)
		}
		refused := 0
		for i := range list.Items {
			if condition := meta.FindStatusCondition(list.Items[i].Status.Conditions, names.BindingScheduled); condition != nil && condition.Reason == names.ReasonNoClusterFit {
				refused++
			}
		}
		if refused == n {
			return nil
		}
		pause(ctx, 500*time.Millisecond)
	}
}

// taint sets the taints of a cluster.
func (c *measuredCell) taint(ctx context.Context, name string, taints ...corev1.Taint) error {
	cluster := &clusterv1alpha1.Cluster{}
	if err := c.client.Get(ctx, ctrlclient.ObjectKey{Name: name}, cluster); err != nil {
		return err
	}
	cluster.Spec.Taints = taints
	return c.client.Update(ctx, cluster)
}
