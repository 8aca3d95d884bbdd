package enclosure

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// scenarioEnv makes this program run a scenario in an enclosure instead of its tests.
const scenarioEnv = "CELLPLANE_ENCLOSURE_SCENARIO"

var options = Options{
	Private: []string{"/var/lib/kubelet"}, Kept: []string{"/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic"},
	Hostname: "enclosed",
	Prepare: func(_ context.Context, dir string) (map[string]string, error) {
		return map[string]string{"answer": "42"}, os.WriteFile(filepath.Join(dir, "prepared"), []byte("yes"), 0o600)
	},
}

func TestMain(m *testing.M) {
	scenario := os.Getenv(scenarioEnv)
	switch {
	case scenario == "":
		flag.Parse()
		if missing := Missing(options); len(missing) > 0 && flag.Lookup("test.list").Value.String() == "" {
			fmt.Println("Enclosures are not tested: this machine lacks", strings.Join(missing, ", "))
			if os.Getenv(RequiredEnv) != "" {
				os.Exit(1)
			}
			os.Exit(0)
		}
		os.Exit(m.Run())
	case Inside() == nil:
		if err := enterParent(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(98)
		}
		code, err := Run(options)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 99
		}
		os.Exit(code)
	default:
		os.Exit(enclosed(scenario))
	}
}

// parentEnv has cgroups into which this program moves before it runs a scenario.
const parentEnv = "CELLPLANE_ENCLOSURE_PARENT"

func enterParent() error {
	text := os.Getenv(parentEnv)
	if text == "" {
		return nil
	}
	var parents []cgroup
	if err := json.Unmarshal([]byte(text), &parents); err != nil {
		return err
	}
	for i := range parents {
		if err := parents[i].join(); err != nil {
			return err
		}
	}
	return nil
}

// enclosed is what runs in an enclosure.
func enclosed(scenario string) int {
	switch scenario {
	case "look":
		if err := look(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	case "fail":
		return 7
	}
	// A daemon that left its group and session, in a cgroup below, with a mount: what containers are.
	if err := daemon(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("started", Inside().Dir)
	if scenario == "wait" {
		_ = unix.Pause() // until it is killed
	}
	return 0
}

// daemonTime is how the daemons of tests are found among the processes of this machine.
const daemonTime = "31415926"

func daemon() error {
	dir := filepath.Join(Inside().Dir, "mounted")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	command := exec.Command("sleep", daemonTime)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	for _, c := range Inside().Cgroups {
		below := filepath.Join(c.Mount, "kubepods", "pod")
		if err := os.MkdirAll(below, 0o755); err != nil {
			return err
		}
		if strings.Contains(c.Options, "memory") {
			if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(command.Process.Pid)), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// look checks what a process in an enclosure sees.
func look() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	name, _ := os.Hostname()
	check(name == "enclosed", "the machine is called %s", name)
	check(Inside().Data["answer"] == "42", "the data is %v", Inside().Data)
	prepared, _ := os.ReadFile(filepath.Join(Inside().Dir, "prepared"))
	check(string(prepared) == "yes", "what was prepared is %q", prepared)
	first, _ := os.ReadFile("/proc/1/cmdline")
	self, _ := os.ReadFile("/proc/self/cmdline")
	check(bytes.Equal(first, self), "the first process is %q", first)
	addresses, err := net.InterfaceAddrs()
	check(err == nil && slices.ContainsFunc(addresses, func(a net.Addr) bool { return a.String() == Address+"/24" }), "the addresses are %v: %v", addresses, err)
	own, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		check(strings.HasSuffix(line, ":/\n"), "it sees the cgroup %s", line)
	}
	for _, file := range options.Kept {
		check(os.WriteFile(file, []byte("1"), 0o644) == nil, "it cannot write to %s", file)
		content, _ := os.ReadFile(file)
		check(string(content) == "1", "%s has %q", file, content)
	}
	for _, file := range []string{"/etc/cellplane-written", "/var/lib/kubelet/cellplane-written", "/var/lib/cellplane-written", "/run/cellplane-written"} {
		check(os.WriteFile(file, nil, 0o644) == nil, "it cannot write %s", file)
	}
	return errors.Join(errs...)
}

func command(t *testing.T, scenario string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command, stderr := exec.Command(self), &bytes.Buffer{}
	command.Env = append(os.Environ(), scenarioEnv+"="+scenario, "TMPDIR="+t.TempDir())
	command.Stderr = stderr
	return command, stderr
}

func TestInside(t *testing.T) {
	before := map[string]string{}
	for _, file := range options.Kept {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before[file] = string(content)
	}
	command, stderr := command(t, "look")
	if err := command.Run(); err != nil {
		t.Errorf("%v: %s", err, stderr)
	}
	for _, file := range options.Kept {
		if after, _ := os.ReadFile(file); string(after) != before[file] {
			t.Errorf("outside, %s has changed from %q to %q", file, before[file], after)
		}
	}
	for _, dir := range []string{"/etc", "/var/lib", "/var/lib/kubelet", "/run"} {
		if _, err := os.Stat(filepath.Join(dir, "cellplane-written")); err == nil {
			t.Errorf("a file in %s is seen outside", dir)
		}
	}
	checkNothingLeft(t, command)
}

func TestExitCode(t *testing.T) {
	command, stderr := command(t, "fail")
	var exit *exec.ExitError
	if err := command.Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("%v: %s", err, stderr)
	}
	checkNothingLeft(t, command)
}

// TestDaemonsEnd expects that nothing outlives the tests.
func TestDaemonsEnd(t *testing.T) {
	command, stderr := command(t, "leave")
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	checkNothingLeft(t, command)
}

// TestKilled expects that nothing survives a killed test but directories, which the next one removes.
func TestKilled(t *testing.T) {
	for who, victim := range map[string]func(pid int) int{
		"the program outside": func(pid int) int { return pid },
		"its child":           func(pid int) int { return childOf(t, pid) },
		"the first process":   func(pid int) int { return childOf(t, childOf(t, pid)) },
		"the tests":           func(pid int) int { return childOf(t, childOf(t, childOf(t, pid))) },
	} {
		t.Run(who, func(t *testing.T) {
			command, dir := waiting(t)
			if err := syscall.Kill(victim(command.Process.Pid), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := command.Wait(); err == nil {
				t.Error("it succeeds")
			}
			runNext(t, command)
			if left := daemons(t, dir); len(left) > 0 {
				t.Errorf("these processes are left: %v", left)
			}
			checkNothingLeft(t, command)
		})
	}
}

// TestSignalled expects that the program outside cleans up before it ends.
func TestSignalled(t *testing.T) {
	for _, signal := range []os.Signal{unix.SIGINT, unix.SIGTERM} {
		t.Run(fmt.Sprint(signal), func(t *testing.T) {
			command, dir := waiting(t)
			if err := command.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := command.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 99 {
				t.Errorf("it ends with %v: %s", err, command.Stderr)
			}
			if left := daemons(t, dir); len(left) > 0 {
				t.Errorf("these processes are left: %v", left)
			}
			checkNothingLeft(t, command)
		})
	}
}

// TestKilledInOtherCgroups expects that cgroups are removed from where they were made.
func TestKilledInOtherCgroups(t *testing.T) {
	parents, err := newCgroups(fmt.Sprintf("cellplane-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range parents {
		if err := parents[i].create(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Rmdir(parents[i].dir()); err != nil { // as long as there are others in it, this fails
				t.Errorf("removing %s: %v", parents[i].dir(), err)
			}
		})
	}
	text, err := json.Marshal(parents)
	if err != nil {
		t.Fatal(err)
	}
	command, _ := waiting(t, parentEnv+"="+string(text))
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil {
		t.Error("it succeeds")
	}
	runNext(t, command, parentEnv+"=")
	checkNothingLeft(t, command)
}

// waiting starts a program with a daemon in an enclosure that waits to be killed, and returns the directory of the enclosure.
func waiting(t *testing.T, env ...string) (started *exec.Cmd, dir string) {
	t.Helper()
	started, stderr := command(t, "wait")
	started.Env = append(started.Env, env...)
	out, err := started.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := started.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("it does not start: %v: %s", err, stderr)
	}
	dir = strings.TrimSpace(strings.TrimPrefix(line, "started "))
	if len(daemons(t, dir)) == 0 {
		t.Fatal("there is no daemon")
	}
	return started, dir
}

// runNext runs a program that shares its directory for temporary files with another.
func runNext(t *testing.T, other *exec.Cmd, env ...string) {
	t.Helper()
	next, stderr := command(t, "leave")
	next.Env = append(append(slices.Clone(other.Env), scenarioEnv+"=leave"), env...)
	if err := next.Run(); err != nil {
		t.Fatalf("the next one: %v: %s", err, stderr)
	}
}

// childOf returns the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var children []string
	for _, file := range tasks {
		content, _ := os.ReadFile(file)
		children = append(children, strings.Fields(string(content))...)
	}
	if len(children) != 1 {
		t.Fatalf("process %d has the children %v", pid, children)
	}
	child, err := strconv.Atoi(children[0])
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// daemons returns the daemons in the cgroups of an enclosure.
func daemons(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		line, _ := os.ReadFile(file)
		groups, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if string(line) == "sleep\x00"+daemonTime+"\x00" && strings.Contains(string(groups), filepath.Base(dir)) {
			found = append(found, filepath.Dir(file))
		}
	}
	return found
}

// checkNothingLeft expects no directories, cgroups and mounts of the enclosures of a command.
func checkNothingLeft(t *testing.T, command *exec.Cmd) {
	t.Helper()
	i := slices.IndexFunc(command.Env, func(v string) bool { return strings.HasPrefix(v, "TMPDIR="+os.TempDir()) })
	if i < 0 {
		t.Fatalf("there is no TMPDIR in %v", command.Env)
	}
	dir := strings.TrimPrefix(command.Env[i], "TMPDIR=")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("these files are left: %v (%v)", left, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("something is mounted in %s: %v", dir, err)
	}
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		groups, err := filepath.Glob(filepath.Join(c.Mount, c.Parent, prefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			// Those of other tests on this machine have directories elsewhere.
			if processes, _ := os.ReadFile(filepath.Join(group, "cgroup.procs")); len(processes) == 0 && !usedElsewhere(group) {
				t.Errorf("the cgroup %s is left", group)
			}
		}
	}
}

func usedElsewhere(group string) bool {
	_, err := os.Stat(filepath.Join(os.TempDir(), filepath.Base(group)))
	return err == nil
}

func TestSweepLeavesOthersAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	e := &Enclosure{Options: options}
	release, err := e.create()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")); len(left) != 2 {
		t.Errorf("an enclosure in use is swept: %v", left)
	}
	if err := release(); err != nil {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// TestSweep expects that what a program was about to make, or has made in part, is removed, and its lock at last.
func TestSweep(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(os.TempDir(), prefix+"1")
	if err := os.WriteFile(dir+lockSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(); err != nil {
		t.Errorf("an enclosure without a directory: %v", err)
	}
	if err := errors.Join(os.WriteFile(dir+lockSuffix, []byte("/nowhere/"+prefix+"1\n"), 0o600), os.MkdirAll(filepath.Join(dir, "tmp"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(); err != nil {
		t.Errorf("an enclosure with a directory: %v", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("these files are left: %v (%v)", left, err)
	}
	if err := os.WriteFile(dir+lockSuffix, []byte("/nowhere/else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(); err == nil || !strings.Contains(err.Error(), `lists "/nowhere/else", which is no cgroup of it`) {
		t.Errorf("the cgroup of somebody else: %v", err)
	}
}

func TestMissing(t *testing.T) {
	if missing := Missing(options); len(missing) > 0 {
		t.Errorf("it lacks %v", missing)
	}
	noDirectory := options
	noDirectory.Private = []string{"/proc/cellplane-enclosure"}
	if missing := Missing(noDirectory); len(missing) != 1 || !strings.HasPrefix(missing[0], "the means for cgroups and namespaces (enclosing the tests: ") {
		t.Errorf("without a directory that can be covered, it lacks %v", missing)
	}
}

func TestParseHierarchies(t *testing.T) {
	own := "9:name=systemd:/init.scope\n4:memory:/docker/abc/pod\n2:cpu,cpuacct:/\n0::/x\n"
	mounts := `22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
36 31 0:32 /docker/abc /elsewhere rw - cgroup cgroup rw,memory
40 31 0:37 /other /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
`
	got, err := parseHierarchies(mounts, own)
	want := []cgroup{
		{Mount: "/sys/fs/cgroup/cpu,cpuacct", Kind: "cgroup", Options: "cpu,cpuacct", Parent: "."},
		{Mount: "/sys/fs/cgroup/memory", Kind: "cgroup", Options: "memory", Parent: "pod"},
		{Mount: "/sys/fs/cgroup/systemd", Kind: "cgroup", Options: "none,name=systemd", Parent: "."},
		{Mount: "/sys/fs/cgroup/unified", Kind: "cgroup2", Parent: "x"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
}
