// Command benchadopt measures how fast workloads that run in three members are adopted, and released again. It counts
// the objects that were changed on the way.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/local"
)

// namespace of the workloads.
const namespace = "legacy"

var memberNames = []string{"member1", "member2", "member3"}

func main() {
	workloads := flag.Int("workloads", 300, "Deployments in each of the three members")
	planOnly := flag.Bool("plan-only", false, "only plan; the Deployments are paused, so that they have no pods")
	binary := flag.String("binary", "bin/cellplane", "the command to measure")
	flag.Parse()
	if err := run(context.Background(), *binary, *workloads, *planOnly); err != nil {
		fmt.Fprintln(os.Stderr, "benchadopt:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string, workloads int, planOnly bool) (err error) {
	dir, err := os.MkdirTemp("", "cellplane-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	dir = filepath.Join(dir, "federation")
	memory := int64(0) // of the last command, in KiB
	cellplane := func(args ...string) (string, error) {
		var output bytes.Buffer
		cmd := exec.CommandContext(ctx, binary, append(args, "--dir", dir)...)
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			return "", err
		}
		ended, most := make(chan struct{}), make(chan int64, 1)
		go func() { most <- highWater(cmd.Process.Pid, ended) }()
		err := cmd.Wait()
		close(ended)
		if memory = <-most; err != nil {
			return "", fmt.Errorf("cellplane %s: %w\n%s", strings.Join(args, " "), err, &output)
		}
		return output.String(), nil
	}
	if _, err := cellplane("up", "--members", fmt.Sprint(len(memberNames))); err != nil {
		return err
	}
	defer func() {
		if _, downErr := cellplane("down"); err == nil {
			err = downErr
		}
	}()
	members, err := connect(dir)
	if err != nil {
		return err
	}
	if err := create(ctx, members, workloads, planOnly); err != nil {
		return err
	}
	before, err := read(ctx, members)
	if err != nil {
		return err
	}
	commands := []string{"plan", "apply", "release"}
	if planOnly {
		commands = commands[:1]
	}
	for _, command := range commands {
		began := time.Now()
		output, err := cellplane("adopt", command, "-n", namespace)
		if err != nil {
			return err
		}
		took := time.Since(began)
		after, err := read(ctx, members)
		if err != nil {
			return err
		}
		fmt.Printf("%-8s %6.1f s %8.1f workloads/s %5d MiB  %d lines, %d of %d objects in members are new, gone or have another spec\n",
			command, took.Seconds(), float64(workloads)/took.Seconds(), memory>>10, strings.Count(output, "\n"), changed(before, after), len(before))
	}
	return nil
}

// highWater returns the most memory that a process has had until it ended, in KiB. What wait4 reports for a child begins with the memory of this process, which holds all
// objects of all members.
func highWater(pid int, ended <-chan struct{}) (most int64) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return most
		}
		if _, text, found := strings.Cut(string(status), "\nVmHWM:"); found {
			if now, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64); err == nil {
				most = now
			}
		}
		select {
		case <-ended:
			return most
		case <-ticker.C:
		}
	}
}

func connect(dir string) ([]kubernetes.Interface, error) {
	var members []kubernetes.Interface
	for _, name := range memberNames {
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: local.KubeconfigFile(dir)}, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
		if err != nil {
			return nil, err
		}
		config.QPS = -1
		member, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		members = append(members, member)
	}
	return members, nil
}

// create creates the same Deployments in all members, every second one with another image, and waits for their pods unless they are paused.
func create(ctx context.Context, members []kubernetes.Interface, workloads int, paused bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2 * len(members))
	for m, member := range members {
		if _, err := member.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		for i := range workloads {
			group.Go(func() error {
				wanted := deployment(m, i)
				wanted.Spec.Paused = paused
				_, err := member.AppsV1().Deployments(namespace).Create(ctx, wanted, metav1.CreateOptions{})
				return err
			})
		}
	}
	if err := group.Wait(); err != nil || paused {
		return err
	}
	return wait.PollUntilContextTimeout(context.WithoutCancel(ctx), time.Second, 30*time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, member := range members {
			list, err := member.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for i := range list.Items {
				if list.Items[i].Status.ReadyReplicas != *list.Items[i].Spec.Replicas {
					return false, nil
				}
			}
		}
		return true, nil
	})
}

func deployment(member, i int) *appsv1.Deployment {
	name := fmt.Sprintf("web-%d", i)
	image := "registry.example/web:1"
	if i%2 == 1 {
		image = fmt.Sprintf("registry.example/web:%d", member)
	}
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1 + member%2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}}},
		},
	}
}

// read returns the spec of each Deployment, ReplicaSet and Pod of the members.
func read(ctx context.Context, members []kubernetes.Interface) (map[types.UID]any, error) {
	found := map[types.UID]any{}
	for _, member := range members {
		deployments, err := member.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range deployments.Items {
			found[deployments.Items[i].UID] = deployments.Items[i].Spec
		}
		replicaSets, err := member.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range replicaSets.Items {
			found[replicaSets.Items[i].UID] = replicaSets.Items[i].Spec
		}
		pods, err := member.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			found[pods.Items[i].UID] = pods.Items[i].Spec
		}
	}
	return found, nil
}

// changed counts the objects that are new, gone, or have another spec.
func changed(before, after map[types.UID]any) int {
	all := maps.Clone(before)
	maps.Copy(all, after)
	count := 0
	for uid := range all {
		if !apiequality.Semantic.DeepEqual(before[uid], after[uid]) {
			count++
		}
	}
	return count
}
