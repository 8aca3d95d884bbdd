package controlplane

import (
	"context"
	_ "embed" // for the configuration of kwok
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/process"
)

// newMemberControllers returns the controllers, the scheduler and the simulated kubelet of a member.
func (c *ControlPlane) newMemberControllers() ([]*process.Process, error) {
	all, err := c.newClusterControllers()
	if err != nil {
		return nil, err
	}
	kwok, err := c.newKwok()
	if err != nil {
		return nil, err
	}
	return append(all, kwok), nil
}

// newClusterControllers returns the controllers and the scheduler of a complete cluster.
func (c *ControlPlane) newClusterControllers(more ...string) ([]*process.Process, error) {
	manager, err := c.newControllerManager("*", more...)
	if err != nil {
		return nil, err
	}
	scheduler, err := c.newScheduler()
	if err != nil {
		return nil, err
	}
	return []*process.Process{manager, scheduler}, nil
}

//go:embed stages.yaml
var stages []byte

//go:embed usage.yaml
var usage []byte

//go:embed streams.yaml
var streams string

// kwokUser is the user of kwok.
const kwokUser = "kwok"

func (c *ControlPlane) newKwok() (*process.Process, error) {
	kubeconfig, err := c.KubeconfigFor(kubebin.Kwok, kwokUser)
	if err != nil {
		return nil, err
	}
	serving, err := c.Serving(kubebin.Kwok)
	if err != nil {
		return nil, err
	}
	config := c.path("kwok.yaml")
	if err := c.writeKwokConfig(config); err != nil {
		return nil, err
	}
	args := []string{
		"--config=" + config,
		"--kubeconfig=" + kubeconfig,
		"--manage-all-nodes=true",
		"--node-ip=127.0.0.1",
		"--node-port=" + strconv.Itoa(c.config.Ports.Kwok),
		"--server-address=127.0.0.1:" + strconv.Itoa(c.config.Ports.Kwok),
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--node-lease-duration-seconds=40",
		"--v=WARN",
	}
	check := process.HTTPCheck(fmt.Sprintf("https://127.0.0.1:%d/healthz", c.config.Ports.Kwok), c.pki.cluster.CertFile, "", "")
	return c.newProcess(kubebin.Kwok, args, check), nil
}

// restartKwok restarts kwok if it runs. It reads its certificate only once.
func (c *ControlPlane) restartKwok() error {
	kwok, err := c.Process(kubebin.Kwok)
	if err != nil || kwok.PID() == 0 {
		return err
	}
	return kwok.Restart()
}

func (c *ControlPlane) writeKwokConfig(path string) error {
	content := stages
	if c.config.Usage {
		content = slices.Concat(content, []byte("---\n"), usage)
	}
	if c.config.Streams {
		log, err := os.OpenFile(c.PodLog(), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := log.Close(); err != nil {
			return err
		}
		content = slices.Concat(content, []byte("---\n"+strings.NewReplacer("{{log}}", c.PodLog(), "{{dir}}", c.config.Dir).Replace(streams)))
	}
	return os.WriteFile(path, content, 0o600)
}

// PodLog returns the log file of all simulated pods, if Streams is set. Lines have the format of container runtimes: time,
// stdout or stderr, F, text.
func (c *ControlPlane) PodLog() string { return c.path("pods.log") }

// populateMember creates the simulated nodes and the rights of kwok.
func (c *ControlPlane) populateMember(ctx context.Context) error {
	client, err := c.adminClient()
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "cellplane:kwok"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get", "list", "watch", "update", "patch", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"nodes/status", "pods/status"}, Verbs: []string{"get", "update", "patch"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "update", "patch"}},
		},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cellplane:kwok"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kwokUser}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); unlessExists(err) != nil {
		return err
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); unlessExists(err) != nil {
		return err
	}
	for i := range c.config.Nodes {
		if _, err := client.CoreV1().Nodes().Create(ctx, c.simulatedNode(i), metav1.CreateOptions{}); unlessExists(err) != nil {
			return err
		}
	}
	return nil
}

func unlessExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c *ControlPlane) simulatedNode(i int) *corev1.Node {
	name := fmt.Sprintf("%s-node-%d", c.config.Name, i)
	labels := map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	if c.config.Site.Region != "" {
		labels[corev1.LabelTopologyRegion] = c.config.Site.Region
	}
	if c.config.Site.Zone != "" {
		labels[corev1.LabelTopologyZone] = c.config.Site.Zone
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("128Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("500Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: labels,
			Annotations: map[string]string{
				"kwok.x-k8s.io/node": "fake", "cellplane.io/kubelet-version": kubebin.Version(),
				"metrics.k8s.io/resource-metrics-path": "/metrics/nodes/" + name + "/metrics/resource", // where metrics-server reads
			},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

// waitForNodes waits until all simulated nodes are Ready.
func (c *ControlPlane) waitForNodes(ctx context.Context) error {
	client, err := c.adminClient()
	if err != nil {
		return err
	}
	ready := 0
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, nil // retry; ctx bounds the wait
		}
		ready = 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		return ready >= c.config.Nodes, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %d of %d nodes are ready: %w", c.config.Name, ready, c.config.Nodes, err)
	}
	return nil
}

func (c *ControlPlane) adminClient() (kubernetes.Interface, error) {
	config, err := c.AdminConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no rate limit for creating nodes
	return kubernetes.NewForConfig(config)
}
