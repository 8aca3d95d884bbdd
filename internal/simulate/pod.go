package simulate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Pod is a compiled pod template.
type Pod struct {
	// Key is equal for pods that fit in the same places.
	Key uint64
	// Requests of each replica.
	Requests corev1.ResourceList

	namespace     string
	priorityClass string
	labels        map[string]string
	requests      amounts
	affinity      nodeaffinity.RequiredNodeAffinity
	tolerations   []corev1.Toleration
	// named means that the pod selects nodes by name, so that rules must be evaluated per node.
	named    bool
	ports    []hostPort
	claims   []string
	own      []ownClaim
	spread   []spreadTerm
	together []podTerm
	apart    []podTerm
	priority int32
	preempts bool
	// first and most select a range of replicas of a StatefulSet.
	first, most int64
}

// FromWorkload compiles the pods of a workload with a pod template at spec.template. It returns false for other
// kinds.
func FromWorkload(namespace string, workload *unstructured.Unstructured) (p *Pod, ok bool, err error) {
	if gvk := workload.GroupVersionKind(); gvk.Group == appsv1.GroupName && gvk.Kind == "StatefulSet" {
		set := &appsv1.StatefulSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(workload.Object, set); err != nil {
			return nil, false, fmt.Errorf("reading StatefulSet %s: %w", workload.GetName(), err)
		}
		p, err = FromStatefulSet(namespace, set)
		return p, err == nil, err
	}
	content, found, err := unstructured.NestedMap(workload.Object, "spec", "template")
	if err != nil || !found {
		return nil, false, nil //nolint:nilerr // other kinds keep other things there
	}
	template := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, template); err != nil {
		return nil, false, fmt.Errorf("reading the pod template of %s %s: %w", workload.GetKind(), workload.GetName(), err)
	}
	p, err = FromTemplate(namespace, template)
	return p, err == nil, err
}

// FromTemplate compiles a pod template in a namespace. It returns an error for templates that no API server
// accepts.
func FromTemplate(namespace string, template *corev1.PodTemplateSpec) (*Pod, error) {
	return compilePod(podFrom(namespace, template))
}

func podFrom(namespace string, template *corev1.PodTemplateSpec) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: template.Labels}, Spec: template.Spec}
}

// FromStatefulSet compiles the pods of a StatefulSet with the volumes of each replica.
func FromStatefulSet(namespace string, set *appsv1.StatefulSet) (*Pod, error) {
	pod := podFrom(namespace, &set.Spec.Template)
	pod.Spec.Volumes = slices.Clone(pod.Spec.Volumes)
	own := make([]ownClaim, len(set.Spec.VolumeClaimTemplates))
	for i := range set.Spec.VolumeClaimTemplates {
		claim := &set.Spec.VolumeClaimTemplates[i]
		own[i] = ownClaimOf(claim.Name+"-"+set.Name+"-", claim)
		// A claim template replaces a volume of the same name.
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == claim.Name })
	}
	p, err := compilePod(pod, own...)
	if err != nil {
		return nil, err
	}
	p.most = math.MaxInt32
	if set.Spec.Ordinals != nil {
		p.first = int64(set.Spec.Ordinals.Start)
	}
	return p.Ordinals(0, p.most), nil
}

// FromRequirements compiles a pod of a namespace from the requirements in a binding; nil means no requests.
func FromRequirements(namespace string, requirements *workv1alpha2.ReplicaRequirements) (*Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	if requirements == nil {
		return compilePod(pod)
	}
	pod.Spec.PriorityClassName = requirements.PriorityClassName
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requirements.ResourceRequest}}}
	claimNode(&pod.Spec, requirements.NodeClaim)
	return compilePod(pod)
}

// FromComponent compiles a pod of a namespace from the requirements of a component.
func FromComponent(namespace string, requirements *workv1alpha2.ComponentReplicaRequirements) (*Pod, error) {
	if requirements == nil {
		return FromRequirements(namespace, nil)
	}
	return FromRequirements(namespace, &workv1alpha2.ReplicaRequirements{
		NodeClaim: requirements.NodeClaim, ResourceRequest: requirements.ResourceRequest, PriorityClassName: requirements.PriorityClassName,
	})
}

func claimNode(spec *corev1.PodSpec, claim *workv1alpha2.NodeClaim) {
	if claim == nil {
		return
	}
	spec.NodeSelector, spec.Tolerations = claim.NodeSelector, claim.Tolerations
	if claim.HardNodeAffinity != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: claim.HardNodeAffinity}}
	}
}

// compilePod compiles a pod whose replicas have claims of their own.
func compilePod(pod *corev1.Pod, own ...ownClaim) (*Pod, error) {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	p := &Pod{
		Requests: requests, namespace: pod.Namespace, priorityClass: pod.Spec.PriorityClassName, labels: pod.Labels,
		requests: amountsOf(requests).plusPod(), affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations,
		named: selectsNames(&pod.Spec), ports: hostPortsOf(&pod.Spec), priority: schedulinghelper.PodPriority(pod),
		preempts: pod.Spec.PreemptionPolicy == nil || *pod.Spec.PreemptionPolicy != corev1.PreemptNever,
	}
	if _, err := p.affinity.Match(&corev1.Node{}); err != nil {
		return nil, fmt.Errorf("reading the node affinity of the pod: %w", err)
	}
	p.own = own
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			p.claims = append(p.claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
			claim := v.Ephemeral.VolumeClaimTemplate
			p.own = append(p.own, ownClaimOf("", &corev1.PersistentVolumeClaim{ObjectMeta: claim.ObjectMeta, Spec: claim.Spec}))
		}
	}
	var err error
	if p.spread, err = compileSpread(pod); err != nil {
		return nil, err
	}
	if p.together, p.apart, err = compileAffinity(pod); err != nil {
		return nil, err
	}
	p.Key, err = keyOf(pod, p)
	return p, err
}

// keyOf hashes everything that placement depends on.
func keyOf(pod *corev1.Pod, p *Pod) (uint64, error) {
	spec := &pod.Spec
	own := make([][]any, len(p.own))
	for i := range p.own {
		own[i] = []any{p.own[i].prefix, p.own[i].class}
	}
	text, err := json.Marshal([]any{
		pod.Namespace, pod.Labels, p.Requests, spec.NodeSelector, spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints,
		p.ports, p.claims, own, spec.Priority, spec.PreemptionPolicy, spec.PriorityClassName,
	})
	if err != nil {
		return 0, fmt.Errorf("hashing a pod: %w", err)
	}
	return xxhash.Sum64(text), nil
}

// selectsNames reports whether the pod has rules that depend on the name of a node.
func selectsNames(spec *corev1.PodSpec) bool {
	if _, named := spec.NodeSelector[corev1.LabelHostname]; named {
		return true
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) > 0 || slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return r.Key == corev1.LabelHostname }) {
			return true
		}
	}
	return false
}

// tolerates reports whether the pod tolerates all taints.
func (p *Pod) tolerates(taints []corev1.Taint) bool {
	_, found := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), taints, p.tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	return !found
}

// hostPort is a host port used by a pod.
type hostPort struct {
	Protocol corev1.Protocol
	IP       string
	Port     int32
}

func hostPortsOf(spec *corev1.PodSpec) []hostPort {
	found := map[hostPort]bool{}
	for _, containers := range [][]corev1.Container{spec.Containers, sidecars(spec.InitContainers)} {
		for i := range containers {
			for _, port := range containers[i].Ports {
				if port.HostPort > 0 {
					found[newHostPort(port)] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b hostPort) int { return int(a.Port - b.Port) })
}

func newHostPort(port corev1.ContainerPort) hostPort {
	taken := hostPort{Protocol: port.Protocol, IP: port.HostIP, Port: port.HostPort}
	if taken.Protocol == "" {
		taken.Protocol = corev1.ProtocolTCP
	}
	if taken.IP == "" {
		taken.IP = anyIP
	}
	return taken
}

const anyIP = "0.0.0.0"

// sidecars returns the init containers that keep running.
func sidecars(containers []corev1.Container) []corev1.Container {
	return slices.DeleteFunc(slices.Clone(containers), func(c corev1.Container) bool {
		return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	})
}

func (h hostPort) conflicts(other hostPort) bool {
	return h.Port == other.Port && h.Protocol == other.Protocol && (h.IP == other.IP || h.IP == anyIP || other.IP == anyIP)
}
