package cellcontrolplane

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/install"
)

// workloads are those of a cell, as they are wanted and as they are. Those that do not exist are empty.
type workloads struct {
	etcd            appsv1.StatefulSet
	apiServer       appsv1.Deployment
	engine          appsv1.Deployment
	wantedMembers   int32 // of etcd
	wantedReplicas  int32 // API servers
	wantedVersion   string
	apiServerLabels labels.Set
}

// Components of the chart.
const (
	componentLabel = "app.kubernetes.io/component"
	etcdPart       = "etcd"
	apiServerPart  = "kube-apiserver"
	enginePart     = "engine"
)

// workloads reads the workloads of a cell.
func (r *run) workloads(ctx context.Context, wanted *install.Cell) (*workloads, error) {
	w := &workloads{wantedVersion: normal(r.plane.Spec.Version)}
	for _, object := range wanted.Objects {
		var found client.Object
		replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
		switch part := object.GetLabels()[componentLabel]; {
		case object.GetKind() == "StatefulSet" && part == etcdPart:
			found, w.wantedMembers = &w.etcd, int32(replicas) //nolint:gosec // at most five
		case object.GetKind() == "Deployment" && part == apiServerPart:
			found, w.wantedReplicas = &w.apiServer, int32(replicas) //nolint:gosec // at most 64
			selector, _, _ := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
			w.apiServerLabels = selector
		case object.GetKind() == "Deployment" && part == enginePart:
			found = &w.engine
		default:
			continue
		}
		key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
		if err := r.Objects.Get(ctx, key, found); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return w, nil
}

// refusal returns why the wanted workloads cannot replace those that exist.
func (w *workloads) refusal() string {
	if w.etcd.Name != "" && ptr.Deref(w.etcd.Spec.Replicas, 1) != w.wantedMembers {
		return fmt.Sprintf("The etcd has %d members, and their number cannot be changed to %d: make another cell, and drain this one.", ptr.Deref(w.etcd.Spec.Replicas, 1), w.wantedMembers)
	}
	return ""
}

// apiServers returns how many API servers may be running.
func (w *workloads) apiServers() int32 {
	return max(w.wantedReplicas, w.apiServer.Status.Replicas+ptr.Deref(w.apiServer.Status.TerminatingReplicas, 0))
}

// settled reports whether all workloads are as wanted.
func (w *workloads) settled() bool {
	return !w.rollingOut() && w.apiServers() == w.wantedReplicas && w.apiServer.Status.ReadyReplicas == w.wantedReplicas && w.etcd.Status.ReadyReplicas == w.wantedMembers
}

func (w *workloads) rollingOut() bool {
	return outdated(&w.apiServer) || outdated(&w.engine) ||
		w.etcd.Status.ObservedGeneration < w.etcd.Generation || w.etcd.Status.UpdatedReplicas < w.etcd.Status.Replicas
}

func outdated(deployment *appsv1.Deployment) bool {
	return deployment.Status.ObservedGeneration < deployment.Generation || deployment.Status.UpdatedReplicas < deployment.Status.Replicas
}

// observe writes what is observed into the status.
func (w *workloads) observe(r *run) {
	now, status := w.apiServer.Status, r.status
	status.ExternalManagedControlPlane = ptr.To(true)
	status.Selector = w.apiServerLabels.String()
	status.Replicas, status.ReadyReplicas = ptr.To(now.Replicas), ptr.To(now.ReadyReplicas)
	status.AvailableReplicas, status.UpToDateReplicas = ptr.To(now.AvailableReplicas), ptr.To(now.UpdatedReplicas)
	if w.apiServer.Status.ObservedGeneration < w.apiServer.Generation {
		status.UpToDateReplicas = ptr.To[int32](0) // it is not known yet
	}
	status.Version = lowest(status.Version, w.wantedVersion, !outdated(&w.apiServer) && now.ReadyReplicas > 0)

	majority := w.wantedMembers/2 + 1
	text := fmt.Sprintf("%d of %d members are ready.", w.etcd.Status.ReadyReplicas, w.wantedMembers)
	if w.etcd.Status.ReadyReplicas >= majority {
		r.set(v1alpha1.ConditionEtcdClusterAvailable, metav1.ConditionTrue, "Available", text)
	} else {
		r.set(v1alpha1.ConditionEtcdClusterAvailable, metav1.ConditionFalse, "NoMajority", text)
	}
	r.say(v1alpha1.ConditionRollingOut, w.rollingOut(), "RollingOut", "NotRollingOut", "Pods are being replaced.")
	r.say(v1alpha1.ConditionScalingUp, now.Replicas < w.wantedReplicas, "ScalingUp", "NotScalingUp", fmt.Sprintf("Scaling up from %d to %d API servers.", now.Replicas, w.wantedReplicas))
	r.say(v1alpha1.ConditionScalingDown, w.apiServers() > w.wantedReplicas, "ScalingDown", "NotScalingDown", fmt.Sprintf("Scaling down from %d to %d API servers.", w.apiServers(), w.wantedReplicas))
}

// lowest returns the lowest version that runs: what was observed before counts until all API servers are of the wanted version.
func lowest(before, wanted string, complete bool) string {
	switch {
	case complete:
		return wanted
	case before == "":
		return ""
	}
	former, err := version.ParseSemantic(before)
	next, failed := version.ParseSemantic(wanted)
	if err == nil && failed == nil && next.LessThan(former) {
		return wanted
	}
	return before
}
