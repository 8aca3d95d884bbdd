package rollout_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
	"github.com/cellplane/cellplane/internal/testenv"
)

var (
	recordTo    = flag.String("rollout.record", "", "directory for histories of the stock controllers; empty means that they are only checked")
	recordSeeds = flag.Uint64("rollout.histories", 1, "how many histories of each kind to record")
)

// The model of the stock controllers, on which the bounds are proven, does what the kube-controller-manager of a member does: histories of it are recorded, and
// the model allows them. No engine takes part.
func TestControllerHistories(t *testing.T) {
	for seed := uint64(1); seed <= *recordSeeds; seed++ {
		for _, kind := range []string{"Deployment", "StatefulSet"} {
			name := fmt.Sprintf("%s-%d", strings.ToLower(kind), seed)
			t.Run(name, func(t *testing.T) {
				s := newScenario(t, kind, seed)
				s.run()
				history := s.recorder.history(kind, name)
				history.Parallel, history.Counted = s.parallel, s.counted
				decisions, err := history.Check()
				if err != nil {
					t.Error(err)
				}
				t.Logf("the model makes all %d decisions of %d events", decisions, len(history.Events))
				if *recordTo != "" {
					s.store(history, name)
				}
			})
		}
	}
}

// scenario is a workload in one member, to which things happen by a seed.
type scenario struct {
	t                 *testing.T
	random            *rand.Rand
	kind, member, ns  string
	parallel, counted bool
	slow              readiness
	spec              controllermodel.Spec
	versions          int
	recorder          *recorder
}

func newScenario(t *testing.T, kind string, seed uint64) *scenario {
	s := &scenario{t: t, random: rand.New(rand.NewPCG(seed, 4)), kind: kind, member: "member1", versions: 1}
	s.spec = controllermodel.Spec{Replicas: 2 + s.random.IntN(4), Revision: image(1)}
	if kind == "StatefulSet" {
		// One member has no maxUnavailable of StatefulSets.
		if s.parallel, s.counted = seed%3 == 0, seed%3 != 1; !s.counted {
			s.member = "member3"
		}
	}
	if seed%2 == 0 {
		s.slow = readiness{50 * time.Millisecond, 500 * time.Millisecond}
	}
	s.setBounds()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "h-"}}
	if err := members[s.member].Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	s.ns = ns.Name
	s.recorder = record(t, s.member, s.ns, kind)
	return s
}

func (s *scenario) setBounds() {
	s.spec.Surge, s.spec.Unavailable = s.random.IntN(3), s.random.IntN(3)
	if s.kind == "StatefulSet" {
		if s.spec.Surge = 0; !s.counted {
			s.spec.Unavailable = 1
		}
		s.spec.Unavailable = max(1, s.spec.Unavailable)
	}
	if s.spec.Surge+s.spec.Unavailable == 0 {
		s.spec.Surge = 1
	}
}

// run creates the workload and changes it some times, in the middle of updates and after them.
func (s *scenario) run() {
	s.apply()
	s.settled()
	for range 5 {
		s.change()
		s.apply()
		if s.random.IntN(2) == 0 {
			s.observed()
		} else {
			s.settled()
		}
	}
	s.spec.Paused, s.spec.Partition = false, 0
	s.apply()
	s.settled()
}

func (s *scenario) change() {
	s.spec.Paused = false
	switch n := s.random.IntN(10); {
	case n < 5:
		s.versions++
		s.spec.Revision = image(s.versions)
	case n < 6 && s.versions > 1:
		s.spec.Revision = image(s.versions - 1)
	case n < 8:
		replicas := 1 + s.random.IntN(6)
		if replicas < s.spec.Replicas {
			// A Deployment that is scaled in during an update may hang (kubernetes/kubernetes#138036).
			s.apply()
			s.settled()
		}
		s.spec.Replicas = replicas
	case s.kind == "StatefulSet":
		s.spec.Partition = s.random.IntN(s.spec.Replicas + 1)
	case n < 9:
		s.spec.Paused = true
	default:
		s.setBounds()
	}
}

// apply writes the spec to the member.
func (s *scenario) apply() {
	s.t.Helper()
	labels := map[string]string{"app": "web"}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: s.slow.annotations()},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "c", Image: s.spec.Revision}}},
	}
	replicas, meta := ptr.To(int32(s.spec.Replicas)), metav1.ObjectMeta{Namespace: s.ns, Name: "web"}
	surge, unavailable := intstr.FromInt(s.spec.Surge), intstr.FromInt(s.spec.Unavailable)
	var obj ctrlclient.Object = &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod, Paused: s.spec.Paused,
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}},
	}}
	if s.kind == "StatefulSet" {
		set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod, ServiceName: "web", PodManagementPolicy: appsv1.OrderedReadyPodManagement,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
				Partition: ptr.To(int32(s.spec.Partition)), MaxUnavailable: &unavailable,
			}},
		}}
		if s.parallel {
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}
		obj = set
	}
	err := members[s.member].Create(s.t.Context(), obj)
	if ctrlclient.IgnoreAlreadyExists(err) == nil && err != nil {
		err = members[s.member].Update(s.t.Context(), obj) // without a version, it replaces any
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// observed waits until the controller has seen the newest spec, and perhaps begun to act.
func (s *scenario) observed() {
	s.t.Helper()
	s.until("the controller has seen the newest spec", func(w *controllermodel.WorkloadEvent, observed int64) bool { return observed == w.Generation })
}

// settled waits until the controller has nothing to do.
func (s *scenario) settled() {
	s.t.Helper()
	s.until("the controller has nothing to do", func(w *controllermodel.WorkloadEvent, observed int64) bool {
		if observed != w.Generation {
			return false
		}
		return s.spec.Paused || w.Status.Pods == w.Spec.Replicas && w.Status.Available == w.Spec.Replicas && w.Status.Updated >= w.Spec.Replicas-w.Spec.Partition
	})
}

func (s *scenario) until(what string, is func(w *controllermodel.WorkloadEvent, observed int64) bool) {
	s.t.Helper()
	testenv.Eventually(s.t, what, func(ctx context.Context) (bool, error) {
		obj := workloadOf(s.kind)
		if err := members[s.member].Get(ctx, ctrlclient.ObjectKey{Namespace: s.ns, Name: "web"}, obj); err != nil {
			return false, err
		}
		w := workloadEvent(obj)
		return is(w, w.Status.ObservedGeneration), fmt.Errorf("%+v", w)
	})
}

func (s *scenario) store(history *controllermodel.History, name string) {
	s.t.Helper()
	text := &bytes.Buffer{}
	fmt.Fprintf(text, "{\"Kind\": %q, \"Parallel\": %t, \"Counted\": %t, \"Source\": %q, \"Events\": [\n", history.Kind, history.Parallel, history.Counted, history.Source)
	for i := range history.Events {
		line, err := json.Marshal(&history.Events[i])
		if err != nil {
			s.t.Fatal(err)
		}
		text.Write(line)
		if i < len(history.Events)-1 {
			text.WriteByte(',')
		}
		text.WriteByte('\n')
	}
	text.WriteString("]}\n")
	if err := os.WriteFile(filepath.Join(*recordTo, name+".json"), text.Bytes(), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func workloadOf(kind string) ctrlclient.Object {
	if kind == "StatefulSet" {
		return &appsv1.StatefulSet{}
	}
	return &appsv1.Deployment{}
}

// workloadEvent returns what a workload says.
func workloadEvent(obj ctrlclient.Object) *controllermodel.WorkloadEvent {
	switch w := obj.(type) {
	case *appsv1.StatefulSet:
		spec := controllermodel.Spec{
			Replicas: int(*w.Spec.Replicas), Unavailable: 1, Partition: int(ptr.Deref(w.Spec.UpdateStrategy.RollingUpdate.Partition, 0)), Revision: w.Spec.Template.Spec.Containers[0].Image,
		}
		if unavailable := w.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; unavailable != nil {
			spec.Unavailable = unavailable.IntValue()
		}
		return &controllermodel.WorkloadEvent{Generation: w.Generation, Spec: spec, Status: controllermodel.Status{
			ObservedGeneration: w.Status.ObservedGeneration, Pods: int(w.Status.Replicas), Available: int(w.Status.AvailableReplicas), Updated: int(w.Status.UpdatedReplicas),
		}}
	case *appsv1.Deployment:
		rolling := w.Spec.Strategy.RollingUpdate
		return &controllermodel.WorkloadEvent{Generation: w.Generation,
			Spec: controllermodel.Spec{
				Replicas: int(*w.Spec.Replicas), Surge: rolling.MaxSurge.IntValue(), Unavailable: rolling.MaxUnavailable.IntValue(), Paused: w.Spec.Paused,
				Revision: w.Spec.Template.Spec.Containers[0].Image,
			},
			Status: controllermodel.Status{
				ObservedGeneration: w.Status.ObservedGeneration, Pods: int(w.Status.Replicas), Available: int(w.Status.AvailableReplicas), Updated: int(w.Status.UpdatedReplicas),
			}}
	}
	return nil
}

// recorder records all writes to the objects of a workload.
type recorder struct {
	t      *testing.T
	mu     sync.Mutex
	events []recordedEvent
}

type recordedEvent struct {
	version int64 // of the store of the member, which orders all writes
	controllermodel.Event
}

// record begins to watch.
func record(t *testing.T, member, ns, kind string) *recorder {
	t.Helper()
	r := &recorder{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	lists := []ctrlclient.ObjectList{&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}}
	if kind == "StatefulSet" {
		lists = []ctrlclient.ObjectList{&appsv1.StatefulSetList{}, &corev1.PodList{}}
	}
	for _, list := range lists {
		stream, err := members[member].Watch(ctx, list, ctrlclient.InNamespace(ns))
		if err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			defer stream.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case event, open := <-stream.ResultChan():
					if !open {
						return
					}
					r.take(event)
				}
			}
		})
	}
	return r
}

func (r *recorder) take(event watch.Event) {
	obj, ok := event.Object.(ctrlclient.Object)
	if !ok {
		r.t.Errorf("got %v", event)
		return
	}
	e := recordedEvent{}
	e.version, _ = strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		if event.Type == watch.Deleted {
			return
		}
		number := func(name string) int {
			n, _ := strconv.Atoi(o.Annotations["deployment.kubernetes.io/"+name])
			return n
		}
		e.Set = &controllermodel.SetEvent{
			Revision: o.Spec.Template.Spec.Containers[0].Image, Size: int(*o.Spec.Replicas), Desired: number("desired-replicas"), Largest: number("max-replicas"),
			StatusPods: int(o.Status.Replicas), StatusAvailable: int(o.Status.AvailableReplicas),
		}
	case *corev1.Pod:
		ordinal, _ := strconv.Atoi(o.Name[strings.LastIndexByte(o.Name, '-')+1:])
		ready := slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		e.Pod = &controllermodel.PodEvent{
			Ordinal: ordinal, Revision: o.Spec.Containers[0].Image, Available: ready, Terminating: o.DeletionTimestamp != nil, Gone: event.Type == watch.Deleted,
		}
	default:
		e.Workload = workloadEvent(obj)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// history returns what was recorded, in the order in which it was stored.
func (r *recorder) history(kind, source string) *controllermodel.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.events, func(a, b recordedEvent) int { return cmp.Compare(a.version, b.version) })
	h := &controllermodel.History{Kind: kind, Source: source}
	for i := range r.events {
		h.Events = append(h.Events, r.events[i].Event)
	}
	return h
}
