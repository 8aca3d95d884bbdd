package columns

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var nodeColumns = []metav1.TableColumnDefinition{
	nameColumn, clusterColumn,
	text("Status", narrow, "Whether the node is ready, and whether pods are scheduled to it."),
	text("Roles", narrow, "What the node is for."),
	ageColumn,
	text("Version", narrow, "The version of its kubelet."),
	text("Internal-IP", wide, "Its address in the cluster."),
	text("External-IP", wide, "Its address outside of the cluster."),
	text("OS-Image", wide, "Its operating system."),
	text("Kernel-Version", wide, "Its kernel."),
	text("Container-Runtime", wide, "What runs its containers."),
}

func nodeCells(node *corev1.Node, cluster string, now time.Time) []any {
	info := node.Status.NodeInfo
	return []any{
		node.Name, cluster, nodeStatus(node), nodeRoles(node), age(node.CreationTimestamp, now), info.KubeletVersion,
		address(node, corev1.NodeInternalIP), address(node, corev1.NodeExternalIP),
		orUnknown(info.OSImage), orUnknown(info.KernelVersion), orUnknown(info.ContainerRuntimeVersion),
	}
}

func nodeStatus(node *corev1.Node) string {
	status := "Unknown"
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			status = "NotReady"
			if condition.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(node *corev1.Node) string {
	var roles []string
	for key, value := range node.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return orNone(strings.Join(slices.Compact(roles), ","))
}

func address(node *corev1.Node, kind corev1.NodeAddressType) string {
	for _, address := range node.Status.Addresses {
		if address.Type == kind {
			return address.Address
		}
	}
	return "<none>"
}

func orUnknown(value string) string {
	if value == "" {
		return "<unknown>"
	}
	return value
}
