package agent

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
)

// The Lease by which the agents of a cluster elect their leader. It is in the member: agents that are cut off from the federation keep what is there.
const (
	leaseName     = "cellplane-agent"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// elect takes part in leader election and leads when elected. An agent that has lost the Lease must restart, with fresh caches.
func (a *agent) elect(ctx context.Context) error {
	config := rest.AddUserAgent(rest.CopyConfig(a.config.Member), program)
	config.Timeout = renewDeadline // a request that hangs must not outlive the Lease
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	if err := ensureNamespace(ctx, client); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var begun atomic.Bool
	led := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: names.ClusterNamespace, Name: leaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				begun.Store(true)
				defer close(led)
				klog.FromContext(ctx).Info("leading")
				a.lead(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	elector.Run(ctx)
	stopped := ctx.Err() != nil
	cancel()
	if begun.Load() {
		<-led
	}
	if stopped {
		return nil
	}
	return fmt.Errorf("another agent is the leader of cluster %s now", a.config.Cluster)
}

// ensureNamespace creates the namespace of the federation in the member, as a join does.
func ensureNamespace(ctx context.Context, member kubernetes.Interface) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace, Labels: map[string]string{names.SystemLabel: "true"}}}
	_, err := member.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s in the cluster: %w", namespace.Name, err)
	}
	return nil
}
