package synthetic

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// PodsPerNamespace is how many pods share a namespace.
	PodsPerNamespace = 100
	// PodsPerWorkload is how many pods share a ReplicaSet or a StatefulSet.
	PodsPerWorkload = 5
	// PodsPerNode is how many pods share a node.
	PodsPerNode = 50
	// workloadsPerNamespace follows from them. Every tenth workload is a StatefulSet.
	workloadsPerNamespace = PodsPerNamespace / PodsPerWorkload
)

// epoch is when the oldest pod was created.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Pod returns the ith pod in one of its revisions. The same numbers give the same pod; another revision differs in status and
// resourceVersion.
func Pod(i, revision int) *corev1.Pod {
	return newWorkload(i / PodsPerWorkload).pod(newIndividual(i, revision))
}

func (w workload) pod(one individual) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: w.meta(one)}
	w.spec(one, &pod.Spec)
	w.status(one, &pod.Spec, &pod.Status)
	return pod
}

// individual has the parts that differ between the pods of a workload. Each part has the same length in all pods.
type individual struct {
	ordinal     int
	suffix      string
	uid         types.UID
	version     string
	created     time.Time
	ready       time.Time
	node        string
	host        string
	address     string
	access      string
	network     string
	containers  [3]string
	restartedAt string
}

func newIndividual(i, revision int) individual {
	r := random("pod", i)
	one := individual{
		ordinal: i % PodsPerWorkload,
		suffix:  letters(r, 5),
		uid:     uid(r),
		version: fmt.Sprint(1_000_000_000 + i*7 + revision*1_000_003),
		created: epoch.Add(time.Duration(r.IntN(200*24*3600)) * time.Second),
		node:    Node(i),
		address: address(r),
		access:  letters(r, 5),
		network: digest(r),
	}
	one.host = address(random("host "+one.node, 0))
	one.ready = one.created.Add(time.Duration(5+r.IntN(90)+revision%1000) * time.Second)
	one.restartedAt = one.created.Format(time.RFC3339)
	for c := range one.containers {
		one.containers[c] = digest(r)
	}
	return one
}

// Namespace returns the namespace of the ith pod.
func Namespace(i int) string {
	n := i / PodsPerNamespace
	r := random("namespace", n)
	return fmt.Sprintf("%s-%s-%s", pick(r, teams), pick(r, environments), word(r, n))
}

// Node returns the node of the ith pod. Pods of a namespace are spread.
func Node(i int) string {
	n := (i % PodsPerNamespace) + (i / PodsPerNamespace / PodsPerNode * PodsPerNamespace)
	return nodeName(n)
}

// App returns the value of the label `app` of the ith pod, which the pods of its workload share.
func App(i int) string { return newWorkload(i / PodsPerWorkload).name }

func nodeName(n int) string {
	r := random("node", n)
	return fmt.Sprintf("ip-10-%03d-%03d-%03d.eu-central-1.compute.internal", n>>14&0xff, n>>6&0xff, r.IntN(4)<<6|n&0x3f)
}

// workload has what the pods of a ReplicaSet or StatefulSet have in common.
type workload struct {
	number      int
	name        string
	namespace   string
	hash        string
	uid         types.UID
	statefulSet bool
	team        string
	environment string
	version     string
	containers  int
}

func newWorkload(number int) workload {
	r := random("workload", number)
	namespace := Namespace(number * PodsPerWorkload)
	return workload{
		number:      number,
		name:        fmt.Sprintf("%s-%s-%s", pick(r, nouns), pick(r, roles), word(r, number%workloadsPerNamespace)),
		namespace:   namespace,
		hash:        letters(r, 10),
		uid:         uid(r),
		statefulSet: number%10 == 9,
		team:        pick(r, teams),
		environment: pick(r, environments),
		version:     fmt.Sprintf("v%d.%d.%d", r.IntN(9), r.IntN(40), r.IntN(20)),
		containers:  1 + (1+r.IntN(4))/2,
	}
}

func (w workload) meta(one individual) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Name:              fmt.Sprintf("%s-%s-%s", w.name, w.hash, one.suffix),
		GenerateName:      fmt.Sprintf("%s-%s-", w.name, w.hash),
		Namespace:         w.namespace,
		UID:               one.uid,
		ResourceVersion:   one.version,
		Generation:        1,
		CreationTimestamp: metav1.NewTime(one.created),
		Labels: map[string]string{
			"app":                          w.name,
			"app.kubernetes.io/name":       w.name,
			"app.kubernetes.io/instance":   w.name + "-" + w.environment,
			"app.kubernetes.io/version":    w.version,
			"app.kubernetes.io/managed-by": "Helm",
			"helm.sh/chart":                "service-" + w.version[1:],
			"team":                         w.team,
			"environment":                  w.environment,
			"pod-template-hash":            w.hash,
		},
		Annotations: map[string]string{
			"checksum/config":                        digest(random("config", w.number)),
			"prometheus.io/scrape":                   "true",
			"prometheus.io/port":                     "9090",
			"kubectl.kubernetes.io/restartedAt":      one.restartedAt,
			"cni.projectcalico.org/containerID":      one.network,
			"cni.projectcalico.org/podIP":            one.address + "/32",
			"sidecar.istio.io/status":                `{"initContainers":["istio-init"],"containers":["istio-proxy"],"revision":"default"}`,
			"cluster-autoscaler.kubernetes.io/evict": "true",
		},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: w.name + "-" + w.hash, UID: w.uid, Controller: new(true), BlockOwnerDeletion: new(true),
		}},
	}
	if w.statefulSet {
		meta.Name, meta.GenerateName = fmt.Sprintf("%s-%d", w.name, one.ordinal), w.name+"-"
		meta.OwnerReferences[0].Kind, meta.OwnerReferences[0].Name = "StatefulSet", w.name
		delete(meta.Labels, "pod-template-hash")
		meta.Labels["controller-revision-hash"] = w.name + "-" + w.hash
		meta.Labels["statefulset.kubernetes.io/pod-name"] = meta.Name
		meta.Labels["apps.kubernetes.io/pod-index"] = fmt.Sprint(one.ordinal)
	}
	return meta
}
