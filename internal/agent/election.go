package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/election"
)

// leaseName is the Lease by which the agents of a cluster elect their leader. It is in the member: agents that are cut off from the federation keep what
// is there.
const leaseName = "cellplane-agent"

var leaseTiming = election.Timing{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}

// elect takes part in leader election and leads when elected. An agent that has lost the Lease must restart, with fresh caches.
func (a *agent) elect(ctx context.Context) error {
	config := rest.AddUserAgent(rest.CopyConfig(a.config.Member), program)
	config.Timeout = leaseTiming.RenewDeadline
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
	candidate, err := election.New(election.Lease{
		Client: client.CoordinationV1(), Namespace: names.ClusterNamespace, Name: leaseName, Identity: host + "_" + uuid.NewString(), Timing: leaseTiming,
	})
	if err != nil {
		return err
	}
	err = candidate.Run(ctx, func(ctx context.Context) error {
		a.lead(ctx)
		return nil
	})
	if err != nil {
		return fmt.Errorf("leading the agents of cluster %s: %w", a.config.Cluster, err)
	}
	return nil
}

// ensureNamespace creates the namespace of the federation in the member, as a join does. Where it exists, an agent does not need the right to read or create namespaces.
func ensureNamespace(ctx context.Context, member kubernetes.Interface) error {
	_, err := member.CoreV1().Namespaces().Get(ctx, names.ClusterNamespace, metav1.GetOptions{})
	if err == nil || apierrors.IsForbidden(err) {
		return nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace, Labels: map[string]string{names.SystemLabel: "true"}}}
	_, err = member.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s in the cluster: %w", namespace.Name, err)
	}
	return nil
}
