// Package up tests the local federation through the command line, including failures.
package up

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	_ "github.com/cellplane/cellplane/internal/cli" // makes the test cache depend on the program
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellplane is the program under test.
var cellplane string

func TestMain(m *testing.M) { testenv.ProgramMain(m, &cellplane) }

// place is a directory with its own federation.
type place struct {
	*testing.T
	dir string
}

func newPlace(t *testing.T) place {
	testenv.Binaries(t) // build them before the tests
	testenv.MetricsServer(t)
	p := place{T: t, dir: filepath.Join(t.TempDir(), "federation")}
	t.Cleanup(func() {
		_ = p.command(context.Background(), "down", "--purge").Run()
		if left := p.processes(); len(left) > 0 {
			t.Errorf("processes are left behind: %v", left)
		}
	})
	return p
}

func (p place) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cellplane, args...)
	cmd.Env = append(os.Environ(), "CELLPLANE_DIR="+p.dir)
	return cmd
}

// run runs a command that must succeed and returns its output.
func (p place) run(args ...string) string {
	p.Helper()
	output, err := p.command(p.Context(), args...).CombinedOutput()
	if err != nil {
		p.Fatalf("cellplane %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// refused runs a command that must fail with an error message that contains the given words.
func (p place) refused(words string, args ...string) {
	p.Helper()
	var stderr bytes.Buffer
	cmd := p.command(p.Context(), args...)
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		p.Fatalf("cellplane %s: %v, want a non-zero exit code", strings.Join(args, " "), err)
	}
	if !strings.Contains(stderr.String(), words) {
		p.Errorf("cellplane %s prints %q, want %q", strings.Join(args, " "), stderr.String(), words)
	}
}

// report returns the output of `status -o json`, and the health from its exit code.
func (p place) report() (report local.Report, healthy bool) {
	p.Helper()
	output, err := p.command(p.Context(), "status", "-o", "json").Output()
	if jsonErr := json.Unmarshal(output, &report); jsonErr != nil {
		p.Fatalf("status -o json: %v (%v)\n%s", jsonErr, err, output)
	}
	return report, err == nil
}

// processes returns the command lines that contain the directory.
func (p place) processes() []string {
	var found []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		p.Fatal(err)
	}
	for _, entry := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && bytes.Contains(line, []byte(p.dir)) {
			found = append(found, entry.Name()+": "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func (p place) noProcesses() {
	p.Helper()
	testenv.Eventually(p.T, "no process is left", func(context.Context) (bool, error) {
		left := p.processes()
		return len(left) == 0, fmt.Errorf("%v", left)
	})
}

func TestLife(t *testing.T) {
	p := newPlace(t)
	p.refused("is not up", "status")

	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte(`
apiVersion: local.cellplane.io/v1alpha1
kind: LocalFederation
cells: 5
members: 1
nodes: 2
parts:
  agent: {flags: {workload-metrics-interval: 1s}}
  cell-a/engine: {flags: {workers-per-member: 7}}
  kube-apiserver: {flags: {profiling: true}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	output := p.run("up", "--config", config, "--cells", "1")
	if !strings.Contains(output, "Your federation is up: 3 control planes") || !strings.Contains(output, "Try next:") {
		t.Errorf("up ends with %q", output)
	}
	if nodes := p.run("kubectl", "--context", "member1", "get", "nodes"); strings.Count(nodes, " Ready ") != 2 {
		t.Errorf("member1 has these nodes:\n%s", nodes)
	}
	if kinds := p.run("kubectl", "--context", "cell-a", "api-resources"); !strings.Contains(kinds, "propagationpolicies") {
		t.Errorf("cell-a serves:\n%s", kinds)
	}
	if versions := p.run("kubectl", "version"); !strings.Contains(versions, "Client Version: v1.") || strings.Contains(versions, "WARNING") {
		t.Errorf("kubectl version prints:\n%s", versions)
	}
	p.testFlagsArrive()
	p.run("kubectl", "create", "configmap", "kept") // by default through the gateway
	p.refused("is up already", "up")

	t.Run("workloads are propagated", func(t *testing.T) { place{t, p.dir}.testPropagation() })
	t.Run("workloads are adopted", func(t *testing.T) { place{t, p.dir}.testAdoption() })
	t.Run("users can be created", func(t *testing.T) { place{t, p.dir}.testUser() })
	t.Run("the doctor finds nothing", func(t *testing.T) { place{t, p.dir}.testDoctor() })
	t.Run("killed processes are restarted", func(t *testing.T) { place{t, p.dir}.testHealing() })
	t.Run("files are private", func(t *testing.T) { place{t, p.dir}.testPrivateFiles() })
	t.Run("processes listen only on loopback", func(t *testing.T) { place{t, p.dir}.testLoopback() })
	t.Run("few inotify instances are used", func(t *testing.T) { place{t, p.dir}.testFewWatches() })
	testenv.Eventually(t, "the member has metrics-server", func(context.Context) (bool, error) {
		return p.memberServesMetrics(), nil
	})

	set := p.testSave()

	report, _ := p.report()
	if err := syscall.Kill(report.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.noProcesses()
	p.refused("is not up", "status")

	p.refused("leave the sizes out to resume it", "up", "--cells", "2")
	if output := p.run("restore", set.set); !strings.Contains(output, "`cellplane up` starts it") || strings.Count(output, "The former store is in ") != 2 {
		t.Errorf("restore prints %q", output)
	}
	p.run("up", "--metrics-server=false")
	p.testFlagsArrive() // the configuration is remembered
	p.testWithoutMetricsServer()
	p.testRestored(set)
	p.run("down")
	p.noProcesses()
	p.run("down", "--purge")
	if _, err := os.Stat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("down --purge left %s: %v", p.dir, err)
	}
}

// testFlagsArrive checks that the flags of the configuration file reach the processes.
func (p place) testFlagsArrive() {
	p.Helper()
	lines := p.processes()
	count := func(words ...string) (n int) {
		for _, line := range lines {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				n++
			}
		}
		return n
	}
	if n := count(" engine ", "--cell=cell-a", "--workers-per-member=7"); n != 1 {
		p.Errorf("%d engines have the flag of cell-a/engine, want 1:\n%s", n, strings.Join(lines, "\n"))
	}
	if n, all := count("/kube-apiserver ", "--profiling=true"), count("/kube-apiserver "); n != 3 || all != 3 {
		p.Errorf("%d of %d API servers have the flag of kube-apiserver, want all 3:\n%s", n, all, strings.Join(lines, "\n"))
	}
}

// memberServesMetrics reports whether metrics-server runs, and the API server of the member asks it.
func (p place) memberServesMetrics() bool {
	p.Helper()
	report, _ := p.report()
	apis := p.run("kubectl", "--context", "member1", "get", "apiservices", "--no-headers")
	return pidOf(report, "member1/metrics-server") != 0 && strings.Contains(apis, "v1beta1.metrics.k8s.io")
}

// testWithoutMetricsServer expects that nothing is left of metrics-server when it is turned off.
func (p place) testWithoutMetricsServer() {
	p.Helper()
	if processes := strings.Join(p.processes(), "\n"); strings.Contains(processes, "/metrics-server ") {
		p.Errorf("metrics-server is turned off, and runs:\n%s", processes)
	}
	if apis := p.run("kubectl", "--context", "member1", "get", "apiservices,services", "-A"); strings.Contains(apis, "metrics") {
		p.Errorf("metrics-server is turned off, and the member asks it:\n%s", apis)
	}
}

// testDoctor expects that a federation with all its parts and some workloads is healthy.
func (p place) testDoctor() {
	var last string
	testenv.Eventually(p.T, "the doctor finds nothing", func(ctx context.Context) (bool, error) {
		output, err := p.command(ctx, "doctor").CombinedOutput()
		last = string(output)
		return err == nil, fmt.Errorf("%w: %s", err, output)
	})
	if !strings.Contains(last, "Nothing was found by 12 checks.") {
		p.Errorf("the doctor says %q", last)
	}
}

// testPropagation creates a namespace, a policy and workloads through the gateway, and checks that they run in the member and report
// their status.
func (p place) testPropagation() {
	p.run("kubectl", "create", "namespace", "demo")
	before := p.templates("cell-a")
	manifest := filepath.Join(p.TempDir(), "policy.yaml")
	if err := os.WriteFile(manifest, []byte(`
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: demo}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: apps/v1, kind: StatefulSet}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: demo}
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: nginx}]}
`), 0o600); err != nil {
		p.Fatal(err)
	}
	p.run("kubectl", "apply", "-f", manifest)
	p.run("kubectl", "-n", "demo", "create", "deployment", "web", "--image", "nginx", "--replicas", "2")
	p.run("kubectl", "-n", "demo", "rollout", "status", "deployment/web", "--timeout", "2m")
	if output := p.run("rollout", "status", "deploy/web", "-n", "demo", "--timeout", "2m"); !strings.Contains(output, "member1: 2 of 2 updated, 2 available: done\n") {
		p.Errorf("cellplane rollout status prints %q", output)
	}
	if pods := p.run("kubectl", "--context", "member1", "-n", "demo", "get", "pods", "-l", "app=web"); strings.Count(pods, " Running ") != 2 {
		p.Errorf("member1 has these pods:\n%s", pods)
	}
	testenv.Eventually(p.T, "the workload is counted", func(context.Context) (bool, error) {
		return p.templates("cell-a") > before, nil
	})
	if nodes := p.run("kubectl", "get", "--raw", "/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy/api/v1/nodes"); !strings.Contains(nodes, "member1-node-0") {
		p.Errorf("through the proxy member1 has these nodes:\n%s", nodes)
	}
	p.testMemberCommands()
	p.testMetrics()
	p.testRollouts()
	p.testUsage()
	p.run("kubectl", "delete", "namespace", "demo", "--timeout", "2m")
	for _, plane := range []string{"hub", "cell-a", "member1"} {
		testenv.Eventually(p.T, "the namespace is gone from "+plane, func(ctx context.Context) (bool, error) {
			output, _ := p.command(ctx, "kubectl", "--context", plane, "get", "namespace", "demo").CombinedOutput()
			return strings.Contains(string(output), "NotFound"), errors.New(string(output))
		})
	}
}

// legacy is a workload with what it needs, as somebody has created it in a member.
const legacy = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {key: secret}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: robot
      containers: [{name: web, image: nginx, envFrom: [{secretRef: {name: key}}]}]
`

// testMetrics expects that the member has an agent, which reports what the workload of demo has there.
func (p place) testMetrics() {
	testenv.Eventually(p.T, "the pods of the workload are counted", func(ctx context.Context) (bool, error) {
		output, err := p.command(ctx, "kubectl", "-n", "demo", "get", "workloadmetrics", "web-deployment.member1", "--no-headers").CombinedOutput()
		return err == nil && slices.Equal(strings.Fields(string(output))[:3], []string{"web-deployment.member1", "member1", "2/2"}), fmt.Errorf("%w: %s", err, output)
	})
}

// testUsage expects that the member says what a pod uses that has run for a while.
func (p place) testUsage() {
	testenv.Eventually(p.T, "the use of a pod is known", func(ctx context.Context) (bool, error) {
		output, err := p.command(ctx, "top", "pod", "db-0", "-n", "demo", "-C", "member1").CombinedOutput()
		used := strings.Fields(string(output))
		return err == nil && len(used) == 8 && strings.Join(used[:6], " ") == "NAME CLUSTER CPU(cores) MEMORY(bytes) db-0 member1" && used[7] == "1Mi", fmt.Errorf("%w: %s", err, output)
	})
}

// testMemberCommands looks into the member by the commands that Karmada's users know.
func (p place) testMemberCommands() {
	pod, _, _ := strings.Cut(p.run("get", "pods", "-n", "demo", "-l", "app=web", "-C", "member1", "-o", "jsonpath={.items[*].metadata.name}"), " ")
	for _, step := range []struct{ command, want string }{
		{"get -n demo deploy web --operation-scope all", "Karmada 2/2"},
		{"get -n demo deploy web -C member1", "Y"},
		{"describe -n demo deploy/web", "Replicas: 2 desired"},
		{"describe -n demo pod/" + pod + " --operation-scope members", "Node: member1-node-"},
		{"logs -n demo " + pod + " --tail 1", ""},
		{"exec -n demo " + pod + " -- sh -c true", ""},
	} {
		if output := strings.Join(strings.Fields(p.run(strings.Fields(step.command)...)), " "); !strings.Contains(output, step.want) {
			p.Errorf("cellplane %s prints %q, want %q", step.command, output, step.want)
		}
	}
}

// templates returns how many templates `cells list` shows for a cell.
func (p place) templates(cell string) int {
	p.Helper()
	var list struct {
		Cells []struct {
			Name      string
			Templates int
		}
	}
	if err := json.Unmarshal([]byte(p.run("cells", "list", "-o", "json")), &list); err != nil {
		p.Fatal(err)
	}
	for _, c := range list.Cells {
		if c.Name == cell {
			return c.Templates
		}
	}
	p.Fatalf("cells list does not show %s", cell)
	return 0
}

// testUser creates a user, who has only the rights that RBAC grants.
func (p place) testUser() {
	kubeconfig := filepath.Join(p.TempDir(), "alice.kubeconfig")
	p.run("user", "create", "alice", "--group", "team-a", "--output", kubeconfig)
	as := func(args ...string) (string, error) {
		output, err := p.command(p.Context(), append([]string{"kubectl", "--kubeconfig", kubeconfig}, args...)...).CombinedOutput()
		return string(output), err
	}
	if output, err := as("get", "configmaps"); err == nil || !strings.Contains(output, "Forbidden") {
		p.Errorf("alice without rights: %v\n%s", err, output)
	}
	p.run("kubectl", "create", "rolebinding", "alice", "--clusterrole", "view", "--group", "team-a")
	testenv.Eventually(p.T, "alice can read", func(context.Context) (bool, error) {
		output, err := as("get", "configmaps")
		return err == nil && strings.Contains(output, "kept"), errors.New(output)
	})
	if output, err := as("get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"); err != nil || !strings.Contains(output, "BEGIN CERTIFICATE") {
		p.Errorf("the CA of the gateway is not published: %v\n%s", err, output)
	}
	if output, err := as("delete", "configmap", "kept"); err == nil || !strings.Contains(output, "Forbidden") {
		p.Errorf("alice deletes with the right to read: %v\n%s", err, output)
	}
}

// testHealing kills every process in turn. Processes that depend on it may exit; they are restarted, too.
func (p place) testHealing() {
	report, _ := p.report()
	for _, child := range report.Processes {
		killed := p.kill(child.Name)
		testenv.Eventually(p.T, child.Name+" is restarted and healthy", func(context.Context) (bool, error) {
			now, healthy := p.report()
			return healthy && pidOf(now, child.Name) != killed, fmt.Errorf("%+v", now)
		})
	}
}

// kill waits until the federation is healthy, kills a process with SIGKILL and returns its pid.
func (p place) kill(name string) (pid int) {
	testenv.Eventually(p.T, name+" is killed", func(context.Context) (bool, error) {
		report, healthy := p.report()
		if pid = pidOf(report, name); !healthy || pid == 0 {
			return false, fmt.Errorf("%+v", report)
		}
		err := syscall.Kill(pid, syscall.SIGKILL)
		return err == nil, err
	})
	return pid
}

func pidOf(report local.Report, name string) int {
	for _, s := range report.Processes {
		if s.Name == name {
			return s.PID
		}
	}
	return 0
}

func (p place) testPrivateFiles() {
	err := filepath.WalkDir(p.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // files are created and deleted meanwhile
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && !strings.Contains(path, "/etcd/") {
			p.Errorf("%s has mode %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		p.Fatal(err)
	}
	// etcd chooses the modes of its own files; the directory above is private.
	if info, err := os.Stat(p.dir); err != nil || info.Mode().Perm() != 0o700 {
		p.Errorf("%s has mode %v (%v)", p.dir, info.Mode(), err)
	}
}

// testFewWatches counts inotify instances. Linux allows 128 per user by default, which must suffice for two federations and
// other programs.
func (p place) testFewWatches() {
	report, _ := p.report()
	instances := map[string]int{}
	all := 0
	for _, child := range report.Processes {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", child.PID))
		if err != nil {
			p.Fatal(err)
		}
		for _, fd := range fds {
			if target, err := os.Readlink(fd); err == nil && target == "anon_inode:inotify" {
				instances[child.Name]++
				all++
			}
		}
	}
	if all == 0 || all > 30 {
		p.Errorf("%d inotify instances are in use: %v", all, instances)
	}
}

func (p place) testLoopback() {
	report, _ := p.report()
	inodes := map[string]string{}
	for _, child := range report.Processes {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", child.PID))
		if err != nil {
			p.Fatal(err)
		}
		for _, fd := range fds {
			if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "socket:[") {
				inodes[strings.Trim(target, "socket:[]")] = child.Name
			}
		}
	}
	listening := 0
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			p.Fatal(err)
		}
		for _, line := range strings.Split(string(data), "\n") {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != "0A" || inodes[fields[9]] == "" {
				continue
			}
			listening++
			if !strings.HasPrefix(fields[1], "0100007F:") {
				p.Errorf("%s listens on %s", inodes[fields[9]], fields[1])
			}
		}
	}
	if listening < len(report.Processes) {
		p.Errorf("only %d listening sockets were found for %d processes", listening, len(report.Processes))
	}
}

func TestInterruptedStart(t *testing.T) {
	p := newPlace(t)
	var stderr bytes.Buffer
	cmd := p.command(t.Context(), "up", "--cells", "0", "--members", "1", "--nodes", "1")
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "an API server is being started", func(context.Context) (bool, error) {
		return strings.Contains(strings.Join(p.processes(), "\n"), "kube-apiserver"), nil
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(stderr.String(), "interrupted; everything has been stopped") {
		t.Errorf("up ended with %v and %q", err, stderr.String())
	}
	if left := p.processes(); len(left) > 0 {
		t.Errorf("processes are left behind: %v", left)
	}
}

func TestForeground(t *testing.T) {
	p := newPlace(t)
	cmd := p.command(t.Context(), "up", "--foreground", "--cells", "0", "--members", "0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the federation is up", func(ctx context.Context) (bool, error) {
		return p.command(ctx, "status").Run() == nil, nil
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	p.noProcesses()
}

func TestPortTaken(t *testing.T) {
	p := newPlace(t)
	p.run("up", "--cells", "0", "--members", "0")
	p.run("down")
	var state struct {
		Ports map[string]struct{ APIServer int }
	}
	data, err := os.ReadFile(filepath.Join(p.dir, "federation.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &state); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(state.Ports["hub"].APIServer)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	p.refused("of hub's kube-apiserver is taken: another program listens on it", "up")
}

func TestChildThatCrashesAtStart(t *testing.T) {
	p := newPlace(t)
	p.run("up", "--cells", "0", "--members", "0")
	p.run("down")
	if err := os.WriteFile(filepath.Join(p.dir, "hub", "etcd", "member", "snap", "db"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.refused("hub/etcd died at start", "up")
	p.noProcesses()
}

func TestDamagedState(t *testing.T) {
	p := newPlace(t)
	p.run("up", "--cells", "0", "--members", "0")
	p.run("down")
	if err := os.WriteFile(filepath.Join(p.dir, "federation.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.refused("is damaged", "up")
}

func TestInvalidSizes(t *testing.T) {
	p := newPlace(t)
	p.refused("the number of cells must be between 0 and 26, not 27", "up", "--cells", "27")
	p.refused("the number of nodes must be between", "up", "--nodes", "-1")
	p.refused("not enough memory", "up", "--cells", "26", "--members", "100")
	p.refused("unknown flag", "up", "--shells", "2")
	if _, err := os.Stat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused up left %s behind", p.dir)
	}
}

func TestPurgeDeletesOnlyFederations(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(p.dir, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.refused("holds no federation; nothing was deleted", "down", "--purge")
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}
