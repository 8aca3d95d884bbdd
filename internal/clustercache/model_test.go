package clustercache_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
)

// model is a minimal cache: all pods of all members.
type model struct {
	members map[string]map[string]*corev1.Pod
}

func keyOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// shown returns the pods that clients see by key, with their members.
func (m *model) shown() map[string]shownPod {
	shown := map[string]shownPod{}
	for _, cluster := range slices.Sorted(maps.Keys(m.members)) {
		for key, pod := range m.members[cluster] {
			// Templates sort first, and any pod of a member hides them.
			if before, ok := shown[key]; !ok || before.cluster == "" || pod.CreationTimestamp.Before(&before.CreationTimestamp) {
				shown[key] = shownPod{pod, cluster}
			}
		}
	}
	return shown
}

// counts returns how many pods there are, and how many of them are shadowed by other members.
func (m *model) counts() (all, shadowed int) {
	shown := m.shown()
	for cluster, pods := range m.members {
		all += len(pods)
		for key := range pods {
			if cluster != "" && shown[key].cluster != cluster {
				shadowed++
			}
		}
	}
	return all, shadowed
}

type shownPod struct {
	*corev1.Pod
	cluster string
}

// identity identifies a state of a pod.
func (p shownPod) identity() string {
	return fmt.Sprintf("%s@%s %s %s %s", keyOf(p.Pod), p.cluster, p.UID, p.ResourceVersion, p.Annotations[names.StaleSinceAnnotation])
}

// selection is a filter, and its equivalent in the model.
type selection struct {
	clustercache.Filter
	labelText, fieldText string
}

func (s selection) matches(p shownPod) bool {
	set := labels.Set(maps.Clone(p.Labels))
	if set == nil {
		set = labels.Set{}
	}
	if p.cluster != "" {
		set[names.ClusterLabel] = p.cluster
	}
	values := fields.Set{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase),
		"status.podIP": p.Status.PodIP, "spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork),
	}
	owner := metav1.GetControllerOfNoCopy(p.Pod)
	return (s.Namespace == "" || s.Namespace == p.Namespace) && s.Labels.Matches(set) && s.Fields.Matches(values) &&
		(s.Owner == "" || owner != nil && string(owner.UID) == s.Owner)
}

// of returns the identities of the selected pods, in order.
func (s selection) of(shown map[string]shownPod) []string {
	selected := []shownPod{}
	for _, pod := range shown {
		if s.matches(pod) {
			selected = append(selected, pod)
		}
	}
	slices.SortFunc(selected, func(a, b shownPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	identities := make([]string, len(selected))
	for i, pod := range selected {
		identities[i] = pod.identity()
	}
	return identities
}

var (
	clusterNames   = rapid.SampledFrom([]string{"m1", "m2", "m3", ""})
	namespaceNames = rapid.SampledFrom([]string{"a", "a-b", "b"})
	podNames       = rapid.SampledFrom([]string{"p", "p-0", "p-1", "q", "r"})
	nodeNames      = rapid.SampledFrom([]string{"", "n1", "n2"})
)

// drawPod draws a pod with a unique version.
func drawPod(t *rapid.T, version int) *corev1.Pod {
	uid := rapid.IntRange(1, 2).Draw(t, "uid")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespaceNames.Draw(t, "namespace"), Name: podNames.Draw(t, "name"),
		UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", uid)), ResourceVersion: fmt.Sprint(version),
		// The UID determines the creation time, as in a member.
		CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000+int64(uid), 0)),
	}}
	if rapid.IntRange(0, 9).Draw(t, "odd version") == 0 {
		pod.ResourceVersion = "v" + pod.ResourceVersion
	}
	for _, label := range []string{"app", "tier"} {
		if value := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, label); value != "" {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, label, value)
		}
	}
	if owner := rapid.IntRange(0, 2).Draw(t, "owner"); owner > 0 {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "o", UID: types.UID(fmt.Sprint("owner-", owner)), Controller: new(true)}}
	}
	pod.Spec.NodeName = nodeNames.Draw(t, "node")
	pod.Spec.HostNetwork = rapid.Bool().Draw(t, "host network")
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", corev1.PodRunning, corev1.PodPending}).Draw(t, "phase")
	pod.Status.PodIP = rapid.SampledFrom([]string{"", "10.0.0.1", "10.0.0.2"}).Draw(t, "address")
	return pod
}

func drawSelection(t *rapid.T) selection {
	s := selection{
		labelText: rapid.SampledFrom([]string{"", "", "app=x", "app=y,tier=x", "app in (x,y)", "!app", "app!=x", "tier", "cellplane.io/cluster=m1", "!cellplane.io/cluster",
			"cellplane.io/cluster in (m2,m3)", "cellplane.io/cluster!=m1,app=x", "app=z", "cellplane.io/cluster=m9"}).Draw(t, "labels"),
		fieldText: rapid.SampledFrom([]string{"", "", "spec.nodeName=n1", "spec.nodeName!=n1", "spec.nodeName=", "status.phase=Running", "status.podIP=10.0.0.1", "metadata.name=p",
			"metadata.name!=p", "metadata.namespace=a", "metadata.namespace!=a", "spec.hostNetwork=true", "status.podIP!=10.0.0.1,spec.nodeName=n2", "spec.nodeName=n9"}).Draw(t, "fields"),
	}
	if rapid.Bool().Draw(t, "namespaced") {
		s.Namespace = namespaceNames.Draw(t, "of namespace")
	}
	if rapid.IntRange(0, 4).Draw(t, "owned") == 0 {
		s.Owner = rapid.SampledFrom([]string{"owner-1", "owner-2", "owner-9"}).Draw(t, "of owner")
	}
	var err error
	if s.Labels, err = labels.Parse(s.labelText); err != nil {
		t.Fatal(err)
	}
	if s.Fields, err = fields.ParseSelector(s.fieldText); err != nil {
		t.Fatal(err)
	}
	return s
}
