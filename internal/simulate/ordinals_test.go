package simulate

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// storageIn returns a storage class with volumes in the given zones, or everywhere.
func storageIn(name string, zones ...string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if len(zones) > 0 {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: zones}}}}
	}
	return c
}

// byDefault makes a storage class the default, created the given seconds later than others.
func byDefault(c *storagev1.StorageClass, since int64) *storagev1.StorageClass {
	c.Annotations = map[string]string{defaultAnnotation: "true"}
	c.CreationTimestamp = metav1.NewTime(time.Unix(since, 0))
	return c
}

// statefulSet returns a StatefulSet with a claim "data" of a storage class.
func statefulSet(name string, cpus int, class *string) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pod := drawPlain(cpus)
	set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	claim.Spec.StorageClassName = class
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
	return set
}

// fromSummary builds a model from the summary of another.
func fromSummary(m *Model) *Model {
	copied := NewModel()
	for _, s := range m.Summarize(1000) {
		for _, alike := range s.Nodes {
			copied.AddNodes(s.Class, alike.Free, int(alike.Count))
		}
	}
	for _, v := range m.SummarizeVolumes() {
		copied.AddVolumes(v)
	}
	for _, c := range m.SummarizeStorage() {
		copied.AddStorageClass(c)
	}
	return copied
}

// TestStatefulSets places replicas of two CPUs on six nodes with four CPUs each, two in each of the zones a, b and
// c. It checks the model and a model built from its summary.
func TestStatefulSets(t *testing.T) {
	m := NewModel()
	for i := range 6 {
		m.SetNode(newNode(fmt.Sprint("n", i), 4, map[string]string{corev1.LabelTopologyZone: string(rune('a' + i/2))}))
	}
	for _, c := range []*storagev1.StorageClass{
		storageIn("everywhere"), storageIn("in-a-or-b", "a", "b"), storageIn("in-a", "a"), storageIn("in-d", "d"),
		byDefault(storageIn("old-default", "a"), 1), byDefault(storageIn("default", "c"), 2),
	} {
		m.SetStorageClass(c)
	}
	inZone := func(zone string) func(*corev1.PersistentVolume) { return labelled(corev1.LabelTopologyZone, zone) }
	for _, v := range []*corev1.PersistentVolume{
		bound("v1", "data-web-0", inZone("a")), bound("v2", "data-web-1", reaching(corev1.LabelHostname, "n3")), bound("v3", "data-web-2", inZone("a")),
		bound("v4", "data-late-3", inZone("b")), bound("v5", "data-lost-1", inZone("d")),
		bound("v6", "data-crowd-0", inZone("a")), bound("v7", "data-crowd-1", inZone("a")), bound("v8", "data-crowd-2", inZone("a")),
		bound("v9", "data-crowd-3", inZone("a")), bound("v10", "data-crowd-4", inZone("a")),
		bound("v11", "data-other-00", inZone("d")), bound("v12", "data-other-x", inZone("d")), bound("v13", "data-other-0-0", inZone("d")), bound("v14", "more-data-other-0", inZone("d")),
		bound("v15", "data-split-0", inZone("a")), bound("v16", "logs-split-0", inZone("b")),
		bound("v17", "shared", inZone("a")),
	} {
		m.SetVolume(v)
	}
	copied := fromSummary(m)
	class := func(name string) *string { return &name }
	const all = math.MaxInt32
	for _, test := range []struct {
		name        string
		set         string
		class       *string
		change      func(*appsv1.StatefulSet)
		there, more int64
		want        int64
	}{
		{"no topology", "new", class("everywhere"), nil, 0, all, 12},
		{"some zones", "new", class("in-a-or-b"), nil, 0, all, 8},
		{"some zones, some replicas", "new", class("in-a-or-b"), nil, 0, 3, 3},
		{"a zone without nodes", "new", class("in-d"), nil, 0, all, 0},
		{"unknown class", "new", class("unknown"), nil, 0, all, 12},
		{"no class", "new", class(""), nil, 0, all, 12},
		{"youngest default", "new", nil, nil, 0, all, 4},
		{"an annotation", "new", nil, func(s *appsv1.StatefulSet) {
			s.Spec.VolumeClaimTemplates[0].Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "in-a-or-b"}
		}, 0, all, 8},
		{"claims in several zones and new ones", "web", class("everywhere"), nil, 0, all, 12},
		{"claims in several zones and new ones in one zone", "web", class("in-a"), nil, 0, all, 5}, // one is on n3
		{"claims in several zones except for the first", "web", class("in-a"), nil, 1, all, 5},
		{"no claims left", "web", class("in-a"), nil, 3, all, 4},
		{"a claim after others", "late", class("in-a"), nil, 0, all, 5},
		{"no capacity before a claim", "late", class("in-d"), nil, 0, all, 0},
		{"a claim comes first", "late", class("in-d"), nil, 3, all, 1},
		{"unreachable claim", "lost", class("everywhere"), nil, 0, all, 1},
		{"after the unreachable claim", "lost", class("everywhere"), nil, 2, all, 12},
		{"ordinals start later", "lost", class("everywhere"), func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 2} }, 0, all, 12},
		{"ordinals start at the unreachable claim", "lost", class("everywhere"), func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1} }, 0, all, 0},
		{"more claims than capacity", "crowd", class("everywhere"), nil, 0, all, 4},
		{"claims of another workload", "other", class("everywhere"), nil, 0, all, 12},
		{"claims in different zones", "split", class("everywhere"), func(s *appsv1.StatefulSet) {
			logs := *s.Spec.VolumeClaimTemplates[0].DeepCopy()
			logs.Name = "logs"
			s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, logs)
		}, 0, all, 0},
		{"with a shared claim", "late", class("everywhere"), func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shared"}}}}
		}, 0, all, 3}, // the next one is in another zone
		{"claim replaces a volume", "new", class("everywhere"), func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shared"}}}}
		}, 0, all, 12},
		{"ephemeral volumes", "none", nil, func(s *appsv1.StatefulSet) {
			claim := s.Spec.VolumeClaimTemplates[0].Spec
			claim.StorageClassName = class("in-a-or-b")
			s.Spec.VolumeClaimTemplates = nil
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim}}}}}
		}, 0, all, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			set := statefulSet(test.set, 2, test.class)
			if test.change != nil {
				test.change(set)
			}
			p, err := FromStatefulSet("default", set)
			if err != nil {
				t.Fatal(err)
			}
			p = p.Ordinals(test.there, test.more)
			for summarized, asked := range map[string]*Model{"the model": m, "the summary": copied} {
				fit := asked.Fit(p)
				if fit.Total() != test.want {
					t.Errorf("capacity by %s is %d, want %d", summarized, fit.Total(), test.want)
				}
				sum := int64(0)
				for _, c := range fit.Classes {
					sum += c.Replicas
				}
				if sum != fit.Total() {
					t.Errorf("capacity by %s is %d in classes, and %d in total", summarized, sum, fit.Total())
				}
			}
		})
	}
}

// TestOrdinalsTakeWhereTheirVolumesAre reserves capacity where the volume of a replica is.
func TestOrdinalsTakeWhereTheirVolumesAre(t *testing.T) {
	m := NewModel()
	for i, zone := range []string{"a", "b", "b", "b"} {
		m.SetNode(newNode(fmt.Sprint("n", i), 4, map[string]string{corev1.LabelTopologyZone: zone}))
	}
	m.SetVolume(bound("v", "data-web-1", labelled(corev1.LabelTopologyZone, "a")))
	p, err := FromStatefulSet("default", statefulSet("web", 2, nil))
	if err != nil {
		t.Fatal(err)
	}
	fit := m.Fit(p.Ordinals(1, 1))
	if len(fit.Classes) != 1 || fit.Total() != 1 {
		t.Fatalf("one replica: %+v", fit)
	}
	m.Take(fit.Classes[0].Class, p.Requests, 2)
	if left := m.Fit(p.Ordinals(1, 1)); left.Total() != 0 {
		t.Errorf("with a full zone: %+v", left)
	}
	if left := m.Fit(p.Ordinals(2, 10)); left.Total() != 6 {
		t.Errorf("other replicas with a full zone: %+v", left)
	}
}

func TestOrdinalsHaveKeysOfTheirOwn(t *testing.T) {
	plain := spec(t, 2, func(*corev1.Pod) {})
	if plain.Ordinals(1, 2) != plain {
		t.Error("replicas without volumes of their own have different keys")
	}
	keys := map[uint64]string{}
	for _, set := range []*appsv1.StatefulSet{statefulSet("web", 1, nil), statefulSet("db", 1, nil), statefulSet("web", 1, new(string))} {
		p, err := FromStatefulSet("default", set)
		if err != nil {
			t.Fatal(err)
		}
		for _, some := range [][2]int64{{0, 1}, {1, 1}, {0, 2}, {0, 11}, {1, 10}} {
			what := fmt.Sprintf("%v of %s", some, set.Name)
			if other, known := keys[p.Ordinals(some[0], some[1]).Key]; known {
				t.Errorf("%s and %s have the same key", what, other)
			}
			keys[p.Ordinals(some[0], some[1]).Key] = what
		}
	}
}

func TestStorageClassesChange(t *testing.T) {
	m := NewModel()
	m.SetNode(newNode("n1", 4, map[string]string{corev1.LabelTopologyZone: "a"}))
	name := "fast"
	p, err := FromStatefulSet("default", statefulSet("web", 2, &name))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want int64) {
		t.Helper()
		if got := m.Fit(p).Replicas; got != want {
			t.Errorf("%s: capacity for %d, want %d", when, got, want)
		}
	}
	for range 2 {
		before := m.Version()
		m.SetStorageClass(storageIn("fast", "b"))
		expect("class in another zone", 0)
		if m.Version() == before {
			t.Error("the version did not change")
		}
		m.SetStorageClass(storageIn("fast", "a", "b"))
		expect("class in this zone too", 2)
		m.SetStorageClass(storageIn("fast", "b"))
		m.KeepStorageClasses(map[string]bool{"slow": true})
		expect("class removed by KeepStorageClasses", 2)
		m.SetStorageClass(storageIn("fast", "b"))
		m.KeepStorageClasses(map[string]bool{"fast": true})
		expect("class kept", 0)
		m.RemoveStorageClass("fast")
		expect("class removed", 2)
	}
}

// TestStorageInSummaryIsBounded checks that a summary is bounded and always contains the default class.
func TestStorageInSummaryIsBounded(t *testing.T) {
	m := NewModel()
	for i := range 2 * maxStorageClasses {
		m.SetStorageClass(storageIn(fmt.Sprintf("class-%04d", i), "a"))
	}
	m.SetStorageClass(byDefault(storageIn("zzz", "b"), 1))
	wide := storageIn("everybody", "a")
	wide.AllowedTopologies[0].MatchLabelExpressions[0].Key = corev1.LabelHostname
	for i := range maxNamed + 1 {
		wide.AllowedTopologies[0].MatchLabelExpressions[0].Values = append(wide.AllowedTopologies[0].MatchLabelExpressions[0].Values, fmt.Sprint("n", i))
	}
	m.SetStorageClass(wide)
	summarized := m.SummarizeStorage()
	if len(summarized) != maxStorageClasses || summarized[len(summarized)-1].Name != "zzz" || !summarized[len(summarized)-1].Default {
		t.Errorf("the summary has %d classes, the last is %+v", len(summarized), summarized[len(summarized)-1])
	}
	for _, c := range summarized {
		if c.Name == "everybody" || c.Default != (c.Name == "zzz") {
			t.Errorf("the summary contains %+v", c)
		}
	}
}

// numbered is a scenario whose replicas have zonal volumes, some of which exist.
type numbered struct {
	scenario
	zones map[int]string // zones of existing volumes
	class string         // zone of new volumes, empty for everywhere
	first int
}

func drawNumbered(t *rapid.T, allowed terms) *numbered {
	w := &numbered{scenario: drawWorld(t, allowed), zones: map[int]string{}}
	for _, ordinal := range rapid.SliceOfNDistinct(rapid.IntRange(0, 4), 0, 3, rapid.ID).Draw(t, "settled") {
		w.zones[ordinal] = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "of")
	}
	w.first = rapid.IntRange(0, 2).Draw(t, "there")
	return w
}

func (w *numbered) fit(t *rapid.T) int64 {
	m := NewModel()
	for _, n := range w.nodes {
		m.SetNode(LeanNode(n))
	}
	w.setPods(m)
	for ordinal, zone := range w.zones {
		m.SetVolume(bound(fmt.Sprint("v", ordinal), fmt.Sprintf("data-web-%d", ordinal), reaching("zone", zone)))
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: w.pod.Labels}, Spec: w.pod.Spec}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	if w.class != "" {
		c := byDefault(storageIn("default", w.class), 1)
		c.AllowedTopologies[0].MatchLabelExpressions[0].Key = "zone"
		m.SetStorageClass(c)
	}
	p, err := FromStatefulSet("default", set)
	if err != nil {
		t.Fatal(err)
	}
	return m.Fit(p.Ordinals(int64(w.first), math.MaxInt32)).Replicas
}

// feasible finds by exhaustive search whether the first replicas can be placed, in any order.
func (w *numbered) feasible(count int) bool {
	var settled []int
	for i := range count {
		if _, known := w.zones[w.first+i]; known {
			settled = append(settled, w.first+i)
		}
	}
	seen := map[string]bool{}
	var try func(placed []*corev1.Pod, perNode []int, left []int, others int) bool
	try = func(placed []*corev1.Pod, perNode []int, left []int, others int) bool {
		if len(left)+others == 0 {
			return true
		}
		key := fmt.Sprint(perNode, left, others)
		if seen[key] {
			return false
		}
		seen[key] = true
		for i, n := range w.nodes {
			if !w.takes(n, placed) {
				continue
			}
			next := w.pod.DeepCopy()
			next.Spec.NodeName = n.Name
			more, counts := slices.Concat(placed, []*corev1.Pod{next}), slices.Clone(perNode)
			counts[i]++
			if others > 0 && (w.class == "" || n.Labels["zone"] == w.class) && try(more, counts, left, others-1) {
				return true
			}
			for j, ordinal := range left {
				if n.Labels["zone"] == w.zones[ordinal] && try(more, counts, slices.Concat(left[:j], left[j+1:]), others) {
					return true
				}
			}
		}
		return false
	}
	return try(w.pods, make([]int, len(w.nodes)), settled, count-len(settled))
}

// TestOrdinalsAreWhatCanBePlaced compares with an exhaustive search.
func TestOrdinalsAreWhatCanBePlaced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawNumbered(t, terms{})
		got := int(w.fit(t))
		if !w.feasible(got) || w.feasible(got+1) {
			t.Fatalf("capacity for %d replicas from %d on, which is possible: %t; one more is possible: %t; volumes in %v:\n%s",
				got, w.first, w.feasible(got), w.feasible(got+1), w.zones, w.describe())
		}
	})
}

// TestOrdinalsAreNeverTooMany combines constraints. The result may then be below the maximum, never above.
func TestOrdinalsAreNeverTooMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawNumbered(t, terms{spread: 2, apart: 1, together: 1})
		w.class = rapid.SampledFrom([]string{"", "a"}).Draw(t, "class")
		for got := int(w.fit(t)); got > 0; got-- {
			if !w.feasible(got) {
				t.Fatalf("capacity for %d replicas from %d on, which cannot be placed; volumes in %v, new ones in %q:\n%s", got, w.first, w.zones, w.class, w.describe())
			}
		}
	})
}
