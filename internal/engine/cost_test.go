package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestCost bounds what a Deployment costs the cell. Only writes are checked, which do not depend on the machine; times
// are only printed. ENGINE_COST_N=100 gives better figures than the default. With ENGINE_SUCCESS_EVENTS, events are only printed, too.
func TestCost(t *testing.T) {
	n := 10
	if text := os.Getenv("ENGINE_COST_N"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"Deployment"}))
	warm := deployment(ns, "warm", 1)
	create(t, warm)
	until(t, "all is warm", cell, deploymentRef(ns, "warm"), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 2 })
	settle(t)

	before, cpu := writes(t), cpuOfCell(t)
	var present, reported []time.Duration
	for i := range n {
		p, r := timeOne(t, ns, fmt.Sprintf("d%d", i))
		present, reported = append(present, p), append(reported, r)
	}
	cpu = cpuOfCell(t) - cpu
	settle(t)
	created := increase(before, writes(t))
	t.Logf("create: p50 %v until present, %v until reported; %.1f writes each: %v; cell CPU %v each (with the engine %s)",
		median(present), median(reported), total(created)/float64(n), perObject(created, n), cpu/time.Duration(n), "and the test in one process")
	checkCost(t, "a new Deployment", created, n, map[string]float64{
		"POST deployments": 1, "PATCH deployments": 1, "POST resourcebindings": 1, "POST works": 2, "POST events": 2, "POST replicasets": 1,
	}, 12)

	before, cpu = writes(t), cpuOfCell(t)
	for i := range n {
		edit(t, cell, deploymentRef(ns, fmt.Sprintf("d%d", i)), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "registry.example/app:2" })
	}
	for i := range n {
		until(t, "the update is reported", cell, deploymentRef(ns, fmt.Sprintf("d%d", i)), func(d *appsv1.Deployment) bool {
			return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == 2 && d.Status.ReadyReplicas == 2 && d.Status.Replicas == 2
		})
	}
	cpu = cpuOfCell(t) - cpu
	settle(t)
	updated := increase(before, writes(t))
	t.Logf("update: %.1f writes each: %v; cell CPU %v each", total(updated)/float64(n), perObject(updated, n), cpu/time.Duration(n))
	checkCost(t, "a new image", updated, n, map[string]float64{"PUT deployments": 1, "PUT works": 2, "POST replicasets": 1}, 8)

	before = writes(t)
	for i := range n {
		if err := cell.Delete(t.Context(), deploymentRef(ns, fmt.Sprintf("d%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		untilGone(t, "the binding is gone", cell, bindingRef(ns, fmt.Sprintf("d%d-deployment", i)))
	}
	settle(t)
	deleted := increase(before, writes(t))
	t.Logf("delete: %.1f writes each: %v", total(deleted)/float64(n), perObject(deleted, n))
	// In the worst case an event is written twice, and no request is made that cannot succeed.
	checkCost(t, "a deletion", deleted, n, map[string]float64{
		"DELETE deployments": 1, "DELETE resourcebindings": 1, "PUT resourcebindings": 1, "DELETE works": 2, "PATCH works": 2, "DELETE replicasets": 2,
	}, 9)
}

// checkCost compares the number of writes with the expected one. The status of a rollout is written more often the
// longer it takes: with slow members each is written twice.
func checkCost(t *testing.T, what string, counts map[string]float64, n int, exact map[string]float64, most float64) {
	t.Helper()
	status := 0.0
	for key, value := range counts {
		if strings.HasSuffix(key, "/status") {
			status += value / float64(n)
			continue
		}
		if strings.HasSuffix(key, " events") && os.Getenv("ENGINE_SUCCESS_EVENTS") != "" {
			continue
		}
		if value != exact[key]*float64(n) {
			t.Errorf("%s costs %.1f times %s, want %.0f", what, value/float64(n), key, exact[key])
		}
		most -= exact[key]
	}
	if status > 2*most {
		t.Errorf("%s costs %.1f writes of status, want %.0f, at most twice as many", what, status, most)
	}
}

// timeOne returns how long a Deployment takes until it is in all members and until its template reports it.
func timeOne(t *testing.T, ns, name string) (present, reported time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wait sync.WaitGroup
	var arrived []func() watch.Interface
	for _, member := range members {
		w, err := member.Watch(ctx, &appsv1.DeploymentList{}, ctrlclient.InNamespace(ns))
		if err != nil {
			t.Fatal(err)
		}
		arrived = append(arrived, func() watch.Interface { return w })
	}
	templates, err := cell.Watch(ctx, &appsv1.DeploymentList{}, ctrlclient.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	create(t, deployment(ns, name, 1))
	for _, w := range arrived {
		wait.Go(func() { waitFor(w(), name, func(*appsv1.Deployment) bool { return true }) })
	}
	wait.Wait()
	present = time.Since(start)
	waitFor(templates, name, func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 2 })
	if ctx.Err() != nil {
		t.Fatalf("%s: %v", name, ctx.Err())
	}
	return present, time.Since(start)
}

func waitFor(w watch.Interface, name string, ok func(*appsv1.Deployment) bool) {
	defer w.Stop()
	for event := range w.ResultChan() {
		if d, isDeployment := event.Object.(*appsv1.Deployment); isDeployment && d.Name == name && ok(d) {
			return
		}
	}
}

// settle waits until nothing is written any more.
func settle(t *testing.T) {
	t.Helper()
	last, since, asked := total(writes(t)), time.Now(), time.Now()
	testenv.Eventually(t, "the cell is quiet", func(context.Context) (bool, error) {
		if time.Since(asked) < 500*time.Millisecond {
			return false, nil // the request itself has a cost
		}
		asked = time.Now()
		if now := total(writes(t)); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 6*time.Second, nil
	})
}

// writes returns how many writes the cell's API server has served, by verb and resource.
func writes(t *testing.T) map[string]float64 {
	t.Helper()
	client, err := kubernetes.NewForConfig(cellConfig)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	scanner := bufio.NewScanner(bytes.NewReader(metrics))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		verb, resource := label(line, "verb"), label(line, "resource")
		switch verb {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE":
		default:
			continue
		}
		if resource == "leases" {
			continue
		}
		if sub := label(line, "subresource"); sub != "" {
			resource += "/" + sub
		}
		key := verb + " " + resource
		if code := label(line, "code"); !strings.HasPrefix(code, "2") {
			key += " " + code
		}
		value, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		counts[key] += value
	}
	return counts
}

func label(line, name string) string {
	_, rest, _ := strings.Cut(line, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func increase(before, after map[string]float64) map[string]float64 {
	result := map[string]float64{}
	for key, value := range after {
		if value != before[key] {
			result[key] = value - before[key]
		}
	}
	return result
}

func perObject(counts map[string]float64, n int) map[string]string {
	result := map[string]string{}
	for key, value := range counts {
		result[key] = strconv.FormatFloat(value/float64(n), 'f', 1, 64)
	}
	return result
}

func total(counts map[string]float64) float64 {
	sum := 0.0
	for _, value := range counts {
		sum += value
	}
	return sum
}

func median(values []time.Duration) time.Duration {
	slices.Sort(values)
	return values[len(values)/2].Round(100 * time.Microsecond)
}

// cpuOfCell returns the CPU time of the cell's processes and of this one, which runs the engine.
func cpuOfCell(t *testing.T) time.Duration {
	t.Helper()
	var sum time.Duration
	pids := []int{os.Getpid()}
	for _, p := range federation.Cells[0].Processes() {
		pids = append(pids, p.Status(t.Context()).PID)
	}
	for _, pid := range pids {
		usage, err := process.UsageOf(pid)
		if err != nil {
			t.Fatal(err)
		}
		sum += usage.CPU
	}
	return sum
}
