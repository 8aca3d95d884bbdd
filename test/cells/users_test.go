package cells

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/testenv"
)

const (
	namespace = "shop"
	workloads = 8
	notes     = 40
	writers   = 3
)

func workload(i int) string { return fmt.Sprintf("web-%d", i) }
func note(i int) string     { return fmt.Sprintf("note-%d", i) }

const policy = `{"apiVersion":"policy.karmada.io/v1alpha1","kind":"PropagationPolicy","metadata":{"name":"everywhere","namespace":"shop"},
"spec":{"resourceSelectors":[{"apiVersion":"apps/v1","kind":"Deployment"}],"placement":{"clusterAffinity":{"clusterNames":["member1","member2"]}}}}`

// users write and watch through the gateway while the cells change.
type users struct {
	mu      sync.Mutex
	written map[string]int // the last acknowledged number of each note
	unsure  map[string]int // a number that may have been written
	paused  sync.RWMutex   // held by writers while they write
	losses

	problems []string // reported by writers and informers

	informers           []cache.SharedIndexInformer
	lists               requests // of informers
	stopBystanderWriter func()
}

// isUnavailable reports whether an error asks to retry, or is one that stock API servers return when their etcd dies during a request.
func isUnavailable(err error) bool {
	if apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError &&
		slices.ContainsFunc(etcdErrors, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// etcdErrors are parts of the errors that API servers return with status 500 when their etcd dies.
var etcdErrors = []string{
	"rpc error: code = Unavailable", "rpc error: code = Canceled", "rpc error: code = DeadlineExceeded", "rpc error: code = Unknown", "etcdserver: ", "etcdclient: ",
	"context deadline exceeded", "context canceled", "connection refused", "connection reset", "broken pipe", "EOF", "transport is closing",
}

func (w *world) createWorkloads() {
	w.Helper()
	ctx := w.Context()
	if _, err := w.gateway.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if err := w.gateway.CoreV1().RESTClient().Post().AbsPath("/apis/policy.karmada.io/v1alpha1/namespaces/shop/propagationpolicies").Body([]byte(policy)).SetHeader("Content-Type", "application/json").Do(ctx).Error(); err != nil {
		w.Fatal(err)
	}
	w.createQuota()
	for i := range workloads {
		labels := map[string]string{"app": workload(i)}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: workload(i)},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "nginx:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: cpuPerPod}},
				}}}},
			},
		}
		if _, err := w.gateway.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	w.waitRolledOut("nginx:1")
	w.before = w.inMembers()
	if len(w.before) != 2*2*workloads {
		w.Fatalf("there are %d objects in the members, want a Deployment and a pod of each workload in both", len(w.before))
	}
}

// waitRolledOut waits until all workloads run an image in all members, and their status says so.
func (w *world) waitRolledOut(image string) {
	w.Helper()
	defer w.logDuration(image + " is rolled out")()
	for i := range workloads {
		testenv.Eventually(w, workload(i)+" runs "+image, func(ctx context.Context) (bool, error) {
			deployment, err := w.gateway.AppsV1().Deployments(namespace).Get(ctx, workload(i), metav1.GetOptions{})
			if err != nil || deployment.Status.ObservedGeneration != deployment.Generation || deployment.Status.UpdatedReplicas != 2 || deployment.Status.AvailableReplicas != 2 {
				return false, err
			}
			for _, member := range w.members {
				there, err := member.AppsV1().Deployments(namespace).Get(ctx, workload(i), metav1.GetOptions{})
				if err != nil || there.Spec.Template.Spec.Containers[0].Image != image || there.Status.ObservedGeneration != there.Generation || there.Status.Replicas != 1 || there.Status.UpdatedReplicas != 1 || there.Status.AvailableReplicas != 1 {
					return false, err
				}
			}
			return true, nil
		})
	}
}

// update changes the image of all workloads and waits until it is rolled out, which proves that the engines work.
func (w *world) update(image string) {
	w.Helper()
	for i := range workloads {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, image)
		if _, err := w.gateway.AppsV1().Deployments(namespace).Patch(w.Context(), workload(i), types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.Fatalf("updating %s: %v", workload(i), err)
		}
	}
	w.waitRolledOut(image)
	w.before = w.inMembers() // the rollout has replaced the pods
}

// inMembers returns the UIDs of Deployments and pods in the members.
func (w *world) inMembers() map[string]string {
	w.Helper()
	found := map[string]string{}
	for i, member := range w.members {
		deployments, err := member.AppsV1().Deployments(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		for _, d := range deployments.Items {
			found[fmt.Sprintf("member%d/%s", i+1, d.Name)] = string(d.UID)
		}
		pods, err := member.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil {
				found[fmt.Sprintf("member%d/pod/%s", i+1, p.Name)] = string(p.UID)
			}
		}
	}
	return found
}

// checkMembers checks that Deployments and pods in the members are those of before.
func (w *world) checkMembers() {
	w.Helper()
	now := w.inMembers()
	if maps.Equal(now, w.before) {
		return
	}
	for name, uid := range w.before {
		if now[name] != uid {
			w.Errorf("%s had UID %s, now %q", name, uid, now[name])
		}
	}
	for name := range now {
		if w.before[name] == "" {
			w.Errorf("%s is new", name)
		}
	}
}

// startWriting runs writers that increment notes until the test ends.
func (w *world) startWriting() {
	w.written, w.unsure = map[string]int{}, map[string]int{}
	for i := range notes {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: note(i)}, Data: map[string]string{"n": "0"}}
		if _, err := w.gateway.CoreV1().ConfigMaps(namespace).Create(w.Context(), object, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
		w.written[note(i)] = 0
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for n := range writers {
		group.Go(func() {
			for round := 1; ctx.Err() == nil; round++ {
				for i := n; i < notes && ctx.Err() == nil; i += writers {
					w.count(ctx, note(i))
				}
			}
		})
	}
	w.Cleanup(func() {
		stop()
		group.Wait()
	})
}

// count increments a note, with its resourceVersion as precondition. A stale read causes a conflict, and a lost write a lower number.
func (w *world) count(ctx context.Context, name string) {
	w.paused.RLock()
	defer w.paused.RUnlock()
	maps := w.gateway.CoreV1().ConfigMaps(namespace)
	w.mu.Lock()
	last, doubtful := w.written[name], w.unsure[name]
	w.mu.Unlock()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := maps.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(object.Data["n"])
		if err != nil {
			return err
		}
		if n != last && n != doubtful && !w.loses(name, n) {
			w.report("%s has %d, but %d was acknowledged", name, n, last)
		}
		object.Data["n"] = strconv.Itoa(n + 1)
		w.mu.Lock()
		w.unsure[name] = n + 1
		w.mu.Unlock()
		if _, err := maps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return err
		}
		w.mu.Lock()
		w.written[name] = n + 1
		w.mu.Unlock()
		return nil
	})
	// While a cell is down, writes to its notes may fail as unavailable, but with no other error.
	if err != nil && ctx.Err() == nil && !isUnavailable(err) {
		w.report("writing %s: %v", name, err)
	}
}

func (w *world) report(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 50 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

func (w *world) pauseWriting()  { w.paused.Lock() }
func (w *world) resumeWriting() { w.paused.Unlock() }

// checkWrites compares all notes with the acknowledged numbers.
func (w *world) checkWrites() {
	w.Helper()
	w.pauseWriting()
	defer w.resumeWriting()
	list, err := w.gateway.CoreV1().ConfigMaps(namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]string{}
	for _, object := range list.Items {
		seen[object.Name] = object.Data["n"]
	}
	for name, n := range w.written {
		if got := seen[name]; got != strconv.Itoa(n) && got != strconv.Itoa(w.unsure[name]) {
			w.Errorf("%s has %q, but %d was acknowledged", name, got, n)
		}
	}
	for _, problem := range w.problems {
		w.Error(problem)
	}
	w.problems = nil
}
