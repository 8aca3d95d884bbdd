package cells

import (
	"regexp"
	"strings"
	"sync"
	"testing"
)

// TestCellLifecycle adds, weighs, drains and kills cells while users work. The steps build on each other. After each of them, no
// write may be lost, no object may exist twice, and no workload in a member may have changed.
func TestCellLifecycle(t *testing.T) {
	w := newWorld(t)
	w.denyEverything()
	w.createWorkloads()
	w.createBystanders()
	w.startWatching()
	w.startWriting()
	w.startBystanderWriter()
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"bad input", w.testBadInput},
		{"a cell joins", w.testAdd},
		{"a cell gets more", w.testWeight},
		{"a cell leaves", w.testDrain},
		{"a change is turned back", w.testAbort},
		{"a cell dies", w.testFailover},
		{"a cell returns", w.testRejoin},
		{"a working cell is failed over", w.testFailoverOfAWorkingCell},
		{"a cell is cut off", w.testCutOff},
		{"a cell that was cut off returns", w.testSalvage},
		{"a cell dies during a change", w.testFailoverDuringAChange},
		{"the cell that took over dies too", w.testSecondFailover},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			was := w.T
			w.T = t
			defer func() { w.T = was }()
			step.do(t)
			var stores sync.WaitGroup
			defer stores.Wait()
			stores.Go(w.checkStores)
			w.checkWrites()
			w.checkMembers()
			w.checkDenied()
			w.checkQuota()
		}) {
			t.FailNow()
		}
	}
}

func (w *world) testBadInput(*testing.T) {
	var refusals []func()
	for _, test := range []struct{ args, want string }{
		{"cells add cell-a", "cell-a is in the topology already"},
		{"cells add Cell_X", "cannot be the name of a cell"},
		{"cells add cell-c --weight 0", "at least 1, not 0"},
		{"cells drain cell-x", "there is no cell cell-x in the topology; its cells are cell-a, cell-b"},
		{"cells weight cell-a many", `"many" is not a weight`},
		{"cells rejoin cell-a", "has not failed"},
		{"cells abort", "no change is under way"},
		{"cells plan drain cell-x", "there is no cell cell-x"},
	} {
		refusals = append(refusals, func() { w.runRefused(test.want, strings.Fields(test.args)...) })
	}
	inParallel(refusals...)
	if out := w.run("cells", "plan", "add", "cell-c"); !strings.Contains(out, "Nothing has been changed.") || !strings.Contains(out, "cell-c") {
		w.Errorf("unexpected plan:\n%s", out)
	}
}

var movedSome = regexp.MustCompile(`Done: epoch \d+, ([1-9]\d*) objects moved`)

func (w *world) testAdd(t *testing.T) {
	before := w.counters()
	out := w.runChange("cells", "add", "cell-c")
	moved := movedSome.FindStringSubmatch(out)
	if moved == nil {
		t.Fatalf("the command does not report the moved objects:\n%s", out)
	}
	if out := w.run("cells", "list"); !strings.Contains(out, "cell-c") || strings.Contains(out, "under way") {
		w.Errorf("unexpected list:\n%s", out)
	}
	w.checkNoRelist()
	w.checkChangeReported(moved[1], before)
	w.waitHistory("nginx:1")
	w.update("nginx:2")
}

func (w *world) testWeight(*testing.T) {
	w.withClients(func() { w.runChange("cells", "weight", "cell-c", "3") })
	w.checkNoRelist()
	w.waitBackupReported("cell-a", "cell-b", "cell-c")
}

func (w *world) testDrain(*testing.T) {
	w.runChange("cells", "drain", "cell-a")
	w.checkNoRelist()
	w.waitInformersUpToDate()
	w.waitHistory("nginx:1", "nginx:2") // workloads have moved since
	w.update("nginx:3")
	w.waitHistory("nginx:1", "nginx:2", "nginx:3")
	w.undo("nginx:2")
}

// testAbort rolls back a change, made with kubectl, that cannot progress because the joining cell does not answer. The cell had left
// before, and informers must have read it to its end first, so that they need not list again.
func (w *world) testAbort(*testing.T) {
	w.writeInLeftCell("cell-a")
	w.waitReadToEnd("cell-a")
	w.waitIdentitiesRemoved("cell-a")
	w.signal("cell-a/kube-apiserver", "pause")
	w.run("kubectl", "--context", "hub", "patch", "celltopology", "default", "--type=json", "-p",
		`[{"op":"add","path":"/spec/cells/-","value":{"name":"cell-a","weight":1,"state":"In"}}]`)
	w.runInterrupted(regexp.MustCompile(`, \d+ requests held`), "cells", "watch")
	var refusals []func()
	for _, second := range []string{"cells drain cell-b", "cells weight cell-b 2", "cells add cell-d"} {
		refusals = append(refusals, func() { w.runRefused("another change is under way: cell-a is joining", strings.Fields(second)...) })
	}
	inParallel(append(refusals, w.patchRefused)...)
	w.run("cells", "abort", "--wait=false")
	w.signal("cell-a/kube-apiserver", "resume")
	w.runChange("cells", "watch")
	w.checkNoRelist()
	w.writeInLeftCell("cell-a")
	w.waitReadToEnd("cell-a")
	w.addByFlags("cell-a")
	w.waitInformersUpToDate()
	w.checkNoRelist()
}

// patchRefused checks that the hub refuses a second change.
func (w *world) patchRefused() {
	w.Helper()
	output, err := w.command(w.Context(), "kubectl", "--context", "hub", "patch", "celltopology", "default", "--type=json", "-p",
		`[{"op":"add","path":"/spec/cells/-","value":{"name":"cell-d","weight":1,"state":"In"}}]`).CombinedOutput()
	if err == nil || !strings.Contains(string(output), "a change is under way") {
		w.Errorf("a second change by kubectl: %v, %s", err, output)
	}
}

// testFailover kills the hub manager, and later all processes of a cell at once, while writers continue.
func (w *world) testFailover(*testing.T) {
	w.stopBystanderWriter() // its writes could be lost from here on
	w.expectLosses()
	w.signal("cell-b/", "halt")
	w.signal("hub-manager", "resurrect")
	w.runChange("cells", "failover", "cell-b")
	w.waitGatewayTopology()
	w.checkFailoverReported("cell-b")
	w.update("nginx:4")
	w.waitRelisted() // as after the restore of any etcd
	w.acceptLosses()
}

// testRejoin lets the cell join again: every lost write must be kept as a file.
func (w *world) testRejoin(*testing.T) {
	w.signal("cell-b/", "resurrect")
	w.runChange("cells", "rejoin", "cell-b")
	w.checkLosses("cell-b")
	w.checkNoRelist()
	w.update("nginx:5")
}
