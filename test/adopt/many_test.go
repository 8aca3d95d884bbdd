package adopt

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/testenv"
)

var (
	workloadCount = flag.Int("adopt.workloads", 12, "how many workloads are adopted")
	seed          = flag.Uint64("adopt.seed", 1, "seed of the differences between clusters")
)

const (
	manyNamespace = "legacy"
	updated       = "example.com/updated"
)

var (
	cloneSetKind = schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "CloneSet"}
	widgetKind   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	manyKinds    = []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("StatefulSet"), appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		batchv1.SchemeGroupVersion.WithKind("Job"), cloneSetKind, widgetKind,
	}
)

// legacyWorkload is one workload that runs in some members, with differences.
type legacyWorkload struct {
	schema.GroupVersionKind
	name     string
	clusters map[string]client.Object
	// autoscaled is set if it has an autoscaler in members. It is updated through the federation, too.
	autoscaled bool
}

// many is the state of the test.
type many struct {
	*world
	workloads []legacyWorkload
	watches   []*podWatch
}

// Workloads of all kinds, different in each cluster, are adopted, updated once and released. On the way the command and an engine are killed, a member is
// paused and a cell emptied. Nothing is restarted before the update, and released objects are as before, but for the update. Workloads that a member would
// change, or does not let be changed, are left alone.
func testMany(w *world) {
	m := &many{world: w}
	w.Logf("%d workloads, seed %d", *workloadCount, *seed)
	m.prepare()
	m.controlCloneSets()
	m.generate(rand.New(rand.NewPCG(*seed, 0)))
	m.create()
	before := m.read()
	for _, cluster := range m.memberNames {
		m.watches = append(m.watches, watchPods(w.T, cluster, w.members[cluster]))
	}

	flags := []string{"-n", manyNamespace, "--resource", "clonesets.apps.kruise.io,widgets.example.com"}
	m.killedApply(flags)
	m.disturbedApply(flags)
	output, code := m.try(append([]string{"adopt", "apply"}, flags...)...)
	if code != 2 {
		m.Errorf("adopt apply ends with exit code %d", code)
	}
	for name, why := range stubborn {
		if line := fmt.Sprintf("Deployment %s/%s: not adopted: %s", manyNamespace, name, why); !strings.Contains(output, line) {
			m.Errorf("adopt apply does not say %q", line)
		}
		if err := m.federation.Get(m.Context(), client.ObjectKey{Namespace: manyNamespace, Name: name}, &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
			m.Errorf("there is a template of %s: %v", name, err)
		}
	}
	if adopted := strings.Count(output, "adopted\n") + strings.Count(output, "managed already\n"); adopted < *workloadCount {
		m.Errorf("adopt apply has adopted %d of %d workloads:\n%s", adopted, *workloadCount, output)
	}
	m.compare("after the adoption", before, m.read(), nil)
	for _, watch := range m.watches {
		watch.wantQuiet(m.T, nil)
	}

	// The deliberate update. Autoscalers of members go on meanwhile.
	m.scale(before)
	changed := m.update()
	m.run(append([]string{"adopt", "release"}, flags...)...)
	after := m.read()
	m.compare("after the release", before, after, changed)
	for key, obj := range after {
		for _, entries := range []map[string]string{obj.GetLabels(), obj.GetAnnotations()} {
			for name := range entries {
				if strings.Contains(name, "karmada.io/") || strings.Contains(name, "cellplane.io/") {
					m.Errorf("%s still has %s", key, name)
				}
			}
		}
	}
	for _, watch := range m.watches {
		watch.wantQuiet(m.T, changed)
	}
}

// read returns all workloads in members, by cluster and name.
func (m *many) read() map[string]*unstructured.Unstructured {
	m.Helper()
	found := map[string]*unstructured.Unstructured{}
	for _, cluster := range m.memberNames {
		for _, gvk := range manyKinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			if err := m.members[cluster].List(m.Context(), list, client.InNamespace(manyNamespace)); err != nil {
				m.Fatal(err)
			}
			for i := range list.Items {
				found[cluster+" "+list.Items[i].GetName()] = &list.Items[i]
			}
		}
	}
	return found
}

// compare compares what users decide about objects. Those that were changed differ in their mark only.
func (m *many) compare(when string, before, after map[string]*unstructured.Unstructured, changed map[string]bool) {
	m.Helper()
	for key := range after {
		if before[key] == nil {
			m.Errorf("%s there is %s, which is new", when, key)
		}
	}
	for key, old := range before {
		now := after[key]
		if now == nil {
			m.Errorf("%s %s is gone", when, key)
			continue
		}
		want, got := usersPart(old), usersPart(now)
		if changed[now.GetName()] {
			mark(m.T, &unstructured.Unstructured{Object: want})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			m.Errorf("%s %s is another (-before +now):\n%s", when, key, diff)
		}
	}
}

// usersPart returns an object without what servers, controllers and federations keep in it.
func usersPart(obj *unstructured.Unstructured) map[string]any {
	obj = obj.DeepCopy()
	delete(obj.Object, "status")
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	clean := func(entries map[string]string) map[string]string {
		maps.DeleteFunc(entries, func(key, _ string) bool {
			return strings.Contains(key, "karmada.io/") || strings.Contains(key, "cellplane.io/") || key == "deployment.kubernetes.io/revision" || key == "deprecated.daemonset.template.generation"
		})
		if len(entries) == 0 {
			return nil
		}
		return entries
	}
	obj.SetLabels(clean(obj.GetLabels()))
	obj.SetAnnotations(clean(obj.GetAnnotations()))
	return obj.Object
}

// mark makes the deliberate update: an annotation of pods, or of the object where pods cannot be changed.
func mark(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	path := []string{"spec", "template", "metadata", "annotations", updated}
	if obj.GetKind() == "Job" {
		path = path[2:]
	}
	if err := unstructured.SetNestedField(obj.Object, "yes", path...); err != nil {
		t.Fatal(err)
	}
}

// scale scales workloads that have an autoscaler in one of their clusters, as the autoscaler does. Nobody but members decides about these replicas.
func (m *many) scale(before map[string]*unstructured.Unstructured) {
	m.Helper()
	for i := range m.workloads {
		l := &m.workloads[i]
		if !l.autoscaled {
			continue
		}
		cluster := slices.Min(slices.Collect(maps.Keys(l.clusters)))
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: manyNamespace, Name: l.name}}
		scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
		if err := m.members[cluster].SubResource("scale").Patch(m.Context(), d, scale, client.WithSubResourceBody(&autoscalingv1.Scale{}), client.FieldOwner("kube-controller-manager")); err != nil {
			m.Fatal(err)
		}
		if err := unstructured.SetNestedField(before[cluster+" "+l.name].Object, int64(3), "spec", "replicas"); err != nil {
			m.Fatal(err)
		}
	}
}

// update updates every third workload, and some CloneSets, through the federation, and waits for all clusters.
func (m *many) update() (changed map[string]bool) {
	m.Helper()
	changed = map[string]bool{}
	for i := 0; i < len(m.workloads); i++ {
		l := &m.workloads[i]
		if i%3 != 0 && i%7 != 0 && (l.GroupVersionKind != cloneSetKind || i%4 != 0) { // no third workload is a CloneSet
			continue
		}
		changed[l.name] = true
		testenv.Eventually(m.T, "the template of "+l.name+" is changed", func(ctx context.Context) (bool, error) {
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(l.GroupVersionKind)
			if err := m.federation.Get(ctx, client.ObjectKey{Namespace: manyNamespace, Name: l.name}, obj); err != nil {
				return false, err
			}
			mark(m.T, obj)
			err := m.federation.Update(ctx, obj)
			return err == nil, err
		})
	}
	testenv.Eventually(m.T, "all clusters have the update", func(context.Context) (bool, error) {
		for key, obj := range m.read() {
			if !changed[obj.GetName()] {
				continue
			}
			path := []string{"spec", "template", "metadata", "annotations", updated}
			if obj.GetKind() == "Job" {
				path = path[2:]
			}
			if value, _, _ := unstructured.NestedString(obj.Object, path...); value != "yes" {
				return false, fmt.Errorf("%s is not updated", key)
			}
		}
		return true, nil
	})
	m.untilRolledOut()
	return changed
}

// killedApply kills the command in the middle of adopting workloads.
func (m *many) killedApply(flags []string) {
	m.Helper()
	cmd := m.command(m.Context(), append([]string{"adopt", "apply", "--parallel", "2"}, flags...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	first := ""
	for lines := bufio.NewScanner(stdout); !strings.HasSuffix(first, ": adopted") && lines.Scan(); {
		first = lines.Text()
	}
	if err := cmd.Process.Kill(); err != nil {
		m.Fatalf("the command ended with %q: %v", first, err)
	}
	_ = cmd.Wait() // it was killed
}

// disturbedApply adopts a third of the workloads, and then kills an engine, pauses a member and empties a cell. The command may fail.
func (m *many) disturbedApply(flags []string) {
	m.Helper()
	parallel := strconv.Itoa(min(16, max(1, *workloadCount/3))) // some must be left when the first third is done
	cmd := m.command(m.Context(), append([]string{"adopt", "apply", "--timeout", "30s", "--parallel", parallel}, flags...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for adopted := 0; adopted < *workloadCount/3 && lines.Scan(); {
		if strings.HasSuffix(lines.Text(), ": adopted") {
			adopted++
		}
	}
	paused := m.pid("member2/kube-apiserver")
	if paused == 0 {
		m.Fatalf("member2 has no API server: %+v", m.report())
	}
	if err := syscall.Kill(paused, syscall.SIGSTOP); err != nil {
		m.Fatal(err)
	}
	resume := sync.OnceValue(func() error { return syscall.Kill(paused, syscall.SIGCONT) })
	defer func() { _ = resume() }()
	const engine = "cell-a/engine"
	killed := m.pid(engine)
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		m.Fatalf("killing %s: %v: %+v", engine, err, m.report())
	}
	testenv.Eventually(m.T, "the engine runs again", func(context.Context) (bool, error) {
		now := m.pid(engine)
		return now != 0 && now != killed, nil
	})
	if err := resume(); err != nil {
		m.Fatal(err)
	}
	m.run("cells", "drain", "cell-b")
	for lines.Scan() { // the command ends by itself
		continue
	}
	_ = cmd.Wait()
}
