package clustercache_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/clustercache"
)

// TestIndexes selects a few of 2 000 pods, and checks that lists visit few others.
func TestIndexes(t *testing.T) {
	const pods, clusters = 2000, 20
	store := newStore(t, clustercache.Options{})
	for i := range pods {
		apply(t, store.Feed(fmt.Sprint("m", i%clusters)), simplePod(fmt.Sprint("pod-", i), i+1, func(pod *corev1.Pod) {
			pod.Namespace = fmt.Sprint("ns-", i%40)
			pod.Labels = map[string]string{"app": fmt.Sprint("app-", i%100), "all": "yes"}
			pod.Spec.NodeName = fmt.Sprint("node-", i%200)
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "rs", UID: types.UID(fmt.Sprint("rs-", i%250)), Controller: ptr.To(true)}}
		}))
	}
	for _, test := range []struct {
		what          string
		filter        clustercache.Filter
		selects, most int
	}{
		{"a namespace", clustercache.Filter{Namespace: "ns-1"}, pods / 40, pods / 40},
		{"a cluster", clustercache.Filter{Labels: selector(t, "cellplane.io/cluster=m3")}, pods / clusters, pods / clusters},
		{"some clusters", clustercache.Filter{Labels: selector(t, "cellplane.io/cluster in (m3,m4)")}, 2 * pods / clusters, 2 * pods / clusters},
		{"a label", clustercache.Filter{Labels: selector(t, "app=app-7")}, pods / 100, 2 * pods / 100},
		{"a label that all have, in a namespace", clustercache.Filter{Namespace: "ns-1", Labels: selector(t, "all=yes")}, pods / 40, pods / 40},
		{"a node", clustercache.Filter{Fields: fields.OneTermEqualSelector("spec.nodeName", "node-9")}, pods / 200, pods / 200},
		{"an owner", clustercache.Filter{Owner: "rs-11"}, pods / 250, pods / 250},
		{"a node that nobody has", clustercache.Filter{Fields: fields.OneTermEqualSelector("spec.nodeName", "none")}, 0, 0},
	} {
		t.Run(test.what, func(t *testing.T) {
			looked, err := store.Looked(test.filter)
			if err != nil || looked > test.most {
				t.Errorf("%d keys are visited, want at most %d (%v)", looked, test.most, err)
			}
			list, err := store.List(clustercache.ListOptions{Filter: test.filter})
			if err != nil {
				t.Fatal(err)
			}
			defer list.Close()
			if list.Len() != test.selects {
				t.Errorf("%d objects are selected, want %d", list.Len(), test.selects)
			}
		})
	}
}

func selector(t *testing.T, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
