package simulate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bound returns a volume bound to a claim in the namespace default.
func bound(name, claim string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: claim}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	v.Status.Phase = corev1.VolumeBound
	for _, f := range change {
		f(v)
	}
	return v
}

func labelled(key, value string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Labels[key] = value }
}

func reaching(key string, values ...string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
		}}}}
	}
}

func usable(mode corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
	}
}

// claiming adds claims to a pod.
func claiming(claims ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, claim := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}})
		}
	}
}

// TestVolumes places pods of two CPUs on six nodes with four CPUs each, two in each of the zones a, b and c of two
// regions. It checks the model and a model built from its summary.
func TestVolumes(t *testing.T) {
	m := NewModel()
	for i := range 6 {
		zone := string(rune('a' + i/2))
		region := map[string]string{"a": "north", "b": "north", "c": "south"}[zone]
		m.SetNode(newNode(fmt.Sprint("n", i), 4, map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: region}))
	}
	for _, v := range []*corev1.PersistentVolume{
		bound("v1", "anywhere"),
		bound("v2", "in-a", labelled(corev1.LabelTopologyZone, "a")),
		bound("v3", "in-a-or-c", labelled(corev1.LabelFailureDomainBetaZone, "a__c")),
		bound("v4", "north", labelled(corev1.LabelTopologyRegion, "north")),
		bound("v5", "affine-to-b", reaching(corev1.LabelTopologyZone, "b")),
		bound("v6", "contradictory", reaching(corev1.LabelTopologyZone, "b"), labelled(corev1.LabelTopologyZone, "a")),
		bound("v7", "on-n3", reaching(corev1.LabelHostname, "n3")),
		bound("v8", "once", reaching(corev1.LabelTopologyZone, "b"), usable(corev1.ReadWriteOnce)),
		bound("v9", "one-pod", reaching(corev1.LabelTopologyZone, "b"), usable(corev1.ReadWriteOncePod)),
		bound("v10", "released", labelled(corev1.LabelTopologyZone, "a"), func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }),
		bound("v11", "on-a-node-that-is-gone", reaching(corev1.LabelHostname, "n9")),
	} {
		m.SetVolume(v)
	}
	copied := NewModel()
	for _, s := range m.Summarize(1000) {
		for _, alike := range s.Nodes {
			copied.AddNodes(s.Class, alike.Free, int(alike.Count))
		}
	}
	for _, v := range m.SummarizeVolumes() {
		copied.AddVolumes(v)
	}
	for _, test := range []struct {
		claims []string
		want   int64
	}{
		{nil, 12},
		{[]string{"anywhere"}, 12},
		{[]string{"unknown"}, 12},
		{[]string{"released"}, 12},
		{[]string{"in-a"}, 4},
		{[]string{"in-a-or-c"}, 8},
		{[]string{"north"}, 8},
		{[]string{"affine-to-b"}, 4},
		{[]string{"contradictory"}, 0},
		{[]string{"on-n3"}, 2},
		{[]string{"on-a-node-that-is-gone"}, 0},
		{[]string{"once"}, 2},
		{[]string{"one-pod"}, 1},
		{[]string{"in-a", "in-a-or-c"}, 4},
		{[]string{"in-a", "affine-to-b"}, 0},
		{[]string{"on-n3", "affine-to-b"}, 2},
	} {
		t.Run(fmt.Sprint(test.claims), func(t *testing.T) {
			p := spec(t, 2, claiming(test.claims...))
			if fit := m.Fit(p); fit.Replicas != test.want {
				t.Errorf("capacity for %d, want %d", fit.Replicas, test.want)
			}
			if fit := copied.Fit(p); fit.Replicas != test.want {
				t.Errorf("capacity by the summary is %d, want %d", fit.Replicas, test.want)
			}
		})
	}
}

// TestTakeOnNamedNode checks that capacity reserved on a node named by a volume is not available to others.
func TestTakeOnNamedNode(t *testing.T) {
	m := NewModel()
	for i := range 3 {
		m.SetNode(newNode(fmt.Sprint("n", i), 4, nil))
	}
	m.SetVolume(bound("v", "local", reaching(corev1.LabelHostname, "n1")))
	copied := NewModel()
	for _, s := range m.Summarize(1000) {
		for _, alike := range s.Nodes {
			copied.AddNodes(s.Class, alike.Free, int(alike.Count))
		}
	}
	for _, v := range m.SummarizeVolumes() {
		copied.AddVolumes(v)
	}
	p := spec(t, 2, claiming("local"))
	for want := int64(2); want >= 0; want-- {
		fit := copied.Fit(p)
		if fit.Replicas != want {
			t.Fatalf("capacity for %d, want %d", fit.Replicas, want)
		}
		for _, c := range fit.Classes {
			copied.Take(c.Class, p.Requests, 1)
		}
	}
}

func TestVolumesChange(t *testing.T) {
	m := NewModel()
	m.SetNode(newNode("n1", 4, map[string]string{corev1.LabelTopologyZone: "a"}))
	inB := labelled(corev1.LabelTopologyZone, "b")
	free := func(claim string) int64 { return m.Fit(spec(t, 2, claiming(claim))).Replicas }
	expect := func(when string, first, second int64) {
		t.Helper()
		if got := [2]int64{free("first"), free("second")}; got != [2]int64{first, second} {
			t.Errorf("%s: capacity for %v, want %v", when, got, [2]int64{first, second})
		}
	}
	m.SetVolume(bound("v", "first", inB))
	expect("first claim bound elsewhere", 0, 2)
	m.SetVolume(bound("v", "second", inB))
	expect("volume bound to the second claim", 2, 0)
	m.SetVolume(bound("w", "second", inB))
	m.RemoveVolume("v")
	expect("an earlier volume of the second claim removed", 2, 0)
	m.SetVolume(bound("w", "second"))
	expect("volume reachable from everywhere", 2, 2)
	m.SetVolume(bound("v", "first", inB))
	m.SetVolume(bound("w", "second", inB))
	m.KeepVolumes(map[string]bool{"w": true})
	expect("only one kept", 2, 0)
}

// TestVolumesInSummaryAreBounded checks the bounds of a summary: volumes beyond them count as reachable from
// everywhere.
func TestVolumesInSummaryAreBounded(t *testing.T) {
	m := NewModel()
	for i := range 2 * maxNamed {
		m.SetNode(newNode(fmt.Sprintf("n%04d", i), 4, nil))
		m.SetVolume(bound(fmt.Sprintf("local%04d", i), fmt.Sprintf("local%04d", i), reaching(corev1.LabelHostname, fmt.Sprintf("n%04d", i))))
	}
	for i := range 2 * maxClaims {
		m.SetVolume(bound(fmt.Sprintf("zone%04d", i), fmt.Sprintf("zone%04d", i), labelled(corev1.LabelTopologyZone, "a")))
	}
	claims := 0
	for _, v := range m.SummarizeVolumes() {
		claims += len(v.Claims)
	}
	if claims != maxClaims {
		t.Errorf("the summary has %d claims, want %d", claims, maxClaims)
	}
	if classes := len(m.Summarize(1000)); classes != maxNamed+1 {
		t.Errorf("the summary has %d classes, want %d", classes, maxNamed+1)
	}
}
