package cells

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

const durableNamespace = "durable"

// TestDurability kills cells right after writes were acknowledged, while others write. With durability "replicated" every one of them is
// found after the failover. Without a backup cell or a hub manager such writes are refused.
func TestDurability(t *testing.T) {
	testenv.Binaries(t)
	w := &world{T: t, dir: filepath.Join(t.TempDir(), "federation")}
	t.Cleanup(func() { _ = w.command(context.Background(), "down", "--purge").Run() })
	w.run("up", "--cells", "3", "--members", "0", "--skip-checks")
	var err error
	if w.supervisor, err = local.NewClient(w.dir); err != nil {
		t.Fatal(err)
	}
	w.config = w.context("cellplane")
	warned := &warnings{}
	w.config.WarningHandler = warned
	w.gateway, w.hub = kubernetes.NewForConfigOrDie(w.config), kubernetes.NewForConfigOrDie(w.context("hub"))

	testenv.Eventually(t, "the cells have their policies", func(ctx context.Context) (bool, error) {
		topology := w.topology(ctx)
		return topology.Status.FencedEpoch == topology.Generation, nil
	})
	w.testValues()
	for _, lost := range []string{"cell-b", "cell-c"} {
		writers := w.startDurableWriters(lost)
		w.signal(lost+"/", "halt")
		writers.halted(t)
		w.runChange("cells", "failover", lost)
		w.waitGatewayTopology()
		writers.check(w, lost)
	}
	// One cell is left, and nobody could hold a copy.
	w.refused(names.DurabilityReplicated, "no other cell could hold a copy")
	preferred := durableObject("preferred", metav1.NamespaceDefault, names.DurabilityReplicatedPreferred)
	if _, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), preferred, metav1.CreateOptions{}); err != nil {
		t.Errorf("a write that may do without a backup cell: %v", err)
	}
	if text := warned.text(); !strings.Contains(text, "not replicated") {
		t.Errorf("it was acknowledged without a warning: %q", text)
	}
	// A dry run stores nothing, and need not be durable.
	dry := durableObject("dry", metav1.NamespaceDefault, names.DurabilityReplicated)
	if _, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), dry, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
}

// testValues checks that wrong values are refused, and that writes are refused while nothing is copied.
func (w *world) testValues() {
	w.Helper()
	ctx := w.Context()
	const words = `use "replicated" or "replicated-preferred", or remove it`
	_, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, durableObject("wrong", metav1.NamespaceDefault, "sometimes"), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words) {
		w.Errorf("an object with a wrong value: %v", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: durableNamespace, Annotations: map[string]string{names.DurabilityAnnotation: "sometimes"}}}
	if _, err := w.gateway.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), words) {
		w.Errorf("a namespace with a wrong value: %v", err)
	}
	namespace.Annotations[names.DurabilityAnnotation] = names.DurabilityReplicated
	if _, err := w.gateway.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	doors := w.durableDoors()
	w.killHubManager()
	testenv.Eventually(w, "durable writes are refused without a hub manager", func(context.Context) (bool, error) {
		// The client repeats refused requests by itself, which takes longer than an attempt should.
		object := durableObject("early", metav1.NamespaceDefault, names.DurabilityReplicated)
		_, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(w.Context(), object, metav1.CreateOptions{})
		return notMade(err), err
	})
	plain := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	if _, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, plain, metav1.CreateOptions{}); err != nil {
		w.Errorf("a write that asks for nothing, without a hub manager: %v", err)
	}
	for _, door := range doors {
		if err := door.send(w); !notMade(err) {
			w.Errorf("%s without a hub manager: %v, want a refusal", door.name, err)
		}
	}
	w.signal("hub-manager", "resurrect")
	testenv.Eventually(w, "durable writes succeed", func(ctx context.Context) (bool, error) {
		for i := range 20 { // in all cells
			object := durableObject(fmt.Sprintf("probe-%d", i), metav1.NamespaceDefault, names.DurabilityReplicated)
			if _, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return false, err
			}
		}
		return true, nil
	})
	// In this order: the last ones delete the objects. A backup cell that is busy may be late, and then a write is refused.
	for _, door := range doors {
		testenv.Eventually(w, door.name+" succeeds", func(context.Context) (bool, error) {
			err := door.send(w)
			if err != nil && !notMade(err) {
				w.Fatalf("%s: %v", door.name, err)
			}
			return err == nil, err
		})
	}
}

// notMade reports whether a durable write was refused because it could not be replicated.
func notMade(err error) bool {
	return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "the change was not made")
}

// door is a way to change an object that asks for durability.
type door struct {
	name, verb, path, contentType, body string
}

// send sends the request once.
func (d door) send(w *world) error {
	w.Helper()
	path, query, _ := strings.Cut(d.path, "?")
	request := w.gateway.CoreV1().RESTClient().Verb(d.verb).AbsPath(path).MaxRetries(0).SetHeader("Content-Type", d.contentType).Body([]byte(d.body))
	if name, value, found := strings.Cut(query, "="); found {
		request.Param(name, value)
	}
	return request.Do(w.Context()).Error()
}

// durableDoors creates objects that ask for durability, themselves or by their namespace, and returns all ways to change them.
func (w *world) durableDoors() []door {
	w.Helper()
	annotations := func(namespace string) string {
		if namespace == durableNamespace {
			return `{}`
		}
		return `{"` + names.DurabilityAnnotation + `":"` + names.DurabilityReplicated + `"}`
	}
	const jsonType, spec = "application/json", `{"containers":[{"name":"c","image":"i"}]}`
	var doors []door
	for _, namespace := range []string{metav1.NamespaceDefault, durableNamespace} {
		core, apps := "/api/v1/namespaces/"+namespace, "/apis/apps/v1/namespaces/"+namespace
		meta := func(name string) string {
			return `{"name":"` + name + `","labels":{"app":"doors"},"annotations":` + annotations(namespace) + `}`
		}
		for path, body := range map[string]string{
			core + "/configmaps":               `{"apiVersion":"v1","kind":"ConfigMap","metadata":` + meta("door") + `}`,
			"/federation" + core + "/pods":     `{"apiVersion":"v1","kind":"Pod","metadata":` + meta("door") + `,"spec":` + spec + `}`,
			apps + "/deployments":              `{"apiVersion":"apps/v1","kind":"Deployment","metadata":` + meta("door") + `,"spec":{"selector":{"matchLabels":{"app":"doors"}},"template":{"metadata":{"labels":{"app":"doors"}},"spec":` + spec + `}}}`,
			"/federation" + core + "/services": `{"apiVersion":"v1","kind":"Service","metadata":` + meta("door") + `,"spec":{"ports":[{"port":80}]}}`,
		} {
			made := door{"a creation at " + path, "POST", path, jsonType, body}
			testenv.Eventually(w, made.name, func(context.Context) (bool, error) {
				err := made.send(w)
				return err == nil || apierrors.IsAlreadyExists(err), err
			})
		}
		configMap, deployment := core+"/configmaps/door", apps+"/deployments/door"
		add := func(name, verb, path, contentType, body string) {
			doors = append(doors, door{name + " in " + namespace, verb, path, contentType, body})
		}
		add("a merge patch", "PATCH", configMap, "application/merge-patch+json", `{"data":{"a":"1"}}`)
		add("a JSON patch", "PATCH", configMap, "application/json-patch+json", `[{"op":"add","path":"/metadata/labels/b","value":"1"}]`)
		add("a strategic merge patch", "PATCH", configMap, "application/strategic-merge-patch+json", `{"data":{"c":"1"}}`)
		add("an apply", "PATCH", configMap+"?fieldManager=doors", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"door"},"data":{"d":"1"}}`)
		add("a patch on /federation", "PATCH", "/federation"+configMap, "application/merge-patch+json", `{"data":{"e":"1"}}`)
		add("a scale", "PATCH", deployment+"/scale", "application/merge-patch+json", `{"spec":{"replicas":2}}`)
		add("a status", "PATCH", deployment+"/status", "application/merge-patch+json", `{"status":{"observedGeneration":1}}`)
		add("an eviction", "POST", "/federation"+core+"/pods/door/eviction", jsonType, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"door","namespace":"`+namespace+`"}}`)
		add("a deletion of a collection", "DELETE", core+"/configmaps?labelSelector=app=doors", jsonType, "")
		add("a deletion", "DELETE", "/federation"+core+"/services/door", jsonType, "")
	}
	return doors
}

// refused checks that a durable write is refused.
func (w *world) refused(value, words string) {
	w.Helper()
	_, err := w.gateway.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(w.Context(), durableObject("refused", metav1.NamespaceDefault, value), metav1.CreateOptions{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), words) {
		w.Errorf("got %v, want %q", err, words)
	}
}

func durableObject(name, namespace, value string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string]string{"n": "0"}}
	if namespace != durableNamespace {
		object.Annotations = map[string]string{names.DurabilityAnnotation: value}
	}
	return object
}

// durableWriters create, change and delete objects until they are stopped. Each object has one writer.
type durableWriters struct {
	stop  context.CancelFunc
	group sync.WaitGroup
	round chan struct{} // receives once for every acknowledged write

	mu sync.Mutex
	// acknowledged is what was last acknowledged of an object: a number, or "" for a deletion. An unsure write of the next is possible.
	acknowledged, unsure map[string]string
}

const absentNote = ""

// startDurableWriters returns after some writes were acknowledged.
func (w *world) startDurableWriters(prefix string) *durableWriters {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	d := &durableWriters{stop: cancel, round: make(chan struct{}), acknowledged: map[string]string{}, unsure: map[string]string{}}
	for i := range 8 {
		namespace := []string{metav1.NamespaceDefault, durableNamespace}[i%2]
		d.group.Go(func() { d.write(ctx, w.gateway, namespace, fmt.Sprintf("%s-%d", prefix, i)) })
	}
	for range 200 {
		<-d.round
	}
	return d
}

// write creates an object, changes it twice, deletes every other one, and goes on with the next.
func (d *durableWriters) write(ctx context.Context, client kubernetes.Interface, namespace, prefix string) {
	maps := client.CoreV1().ConfigMaps(namespace)
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		object := durableObject(name, namespace, names.DurabilityReplicated)
		for n := range 4 {
			var err error
			next := fmt.Sprint(n)
			object.Data["n"], object.Namespace = next, namespace
			switch {
			case n == 0:
				_, err = maps.Create(ctx, object, metav1.CreateOptions{})
			case n < 3:
				_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
			case i%2 == 0:
				next, err = absentNote, maps.Delete(ctx, name, metav1.DeleteOptions{})
			default:
				continue
			}
			if !d.record(ctx, namespace+"/"+name, next, err) {
				break // its state is not known
			}
		}
	}
}

// record notes the outcome of a write, and reports whether it was acknowledged.
func (d *durableWriters) record(ctx context.Context, key, next string, err error) bool {
	d.mu.Lock()
	if err != nil {
		d.unsure[key] = next
	} else {
		d.acknowledged[key] = next
	}
	d.mu.Unlock()
	if err == nil {
		select {
		case d.round <- struct{}{}:
		case <-ctx.Done():
		}
	}
	return err == nil
}

// halted stops the writers after the cell was killed.
func (d *durableWriters) halted(t *testing.T) {
	t.Helper()
	d.stop()
	d.group.Wait()
}

// check reads everything that was written.
func (d *durableWriters) check(w *world, lost string) {
	w.Helper()
	created, deleted := 0, 0
	for key, want := range d.acknowledged {
		namespace, name, _ := strings.Cut(key, "/")
		got := absentNote
		object, err := w.gateway.CoreV1().ConfigMaps(namespace).Get(w.Context(), name, metav1.GetOptions{})
		switch {
		case err == nil:
			got = object.Data["n"]
		case !apierrors.IsNotFound(err):
			w.Fatal(err)
		}
		if want == absentNote {
			deleted++
		} else {
			created++
		}
		if other, unsure := d.unsure[key]; got != want && (!unsure || got != other) {
			w.Errorf("after the loss of %s, %s is %q; %q was acknowledged", lost, key, got, want)
		}
	}
	w.Logf("after the loss of %s: %d objects and %d deletions were acknowledged", lost, created, deleted)
}

// warnings collects the warnings of answers.
type warnings struct {
	mu  sync.Mutex
	all []string
}

var _ rest.WarningHandler = &warnings{}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "\n")
}
