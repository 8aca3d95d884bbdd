package cells

import (
	"regexp"
	"strings"
	"sync"
	"testing"
)

// TestCellsComeGoAndDie is the life of a federation as its operator makes it and its users must not notice. The steps build on each
// other; after each of them nothing may be lost, doubled or disturbed.
func TestCellsComeGoAndDie(t *testing.T) {
	w := newWorld(t)
	w.createWorkloads()
	w.createBystanders()
	w.startWatching()
	w.startWriting()
	w.startTouching()
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
		refusals = append(refusals, func() { w.refused(test.want, strings.Fields(test.args)...) })
	}
	atOnce(refusals...)
	if out := w.run("cells", "plan", "add", "cell-c"); !strings.Contains(out, "Nothing has been changed.") || !strings.Contains(out, "cell-c") {
		w.Errorf("the plan reads\n%s", out)
	}
}

var movedSome = regexp.MustCompile(`Done: epoch \d+, ([1-9]\d*) objects moved`)

func (w *world) testAdd(t *testing.T) {
	counting := w.counting()
	out := w.completes("cells", "add", "cell-c")
	moved := movedSome.FindStringSubmatch(out)
	if moved == nil {
		t.Fatalf("a cell has joined without saying what moved:\n%s", out)
	}
	if out := w.run("cells", "list"); !strings.Contains(out, "cell-c") || strings.Contains(out, "under way") {
		w.Errorf("the list reads\n%s", out)
	}
	w.noDisturbance()
	w.toldOfChange(moved[1], counting)
	w.update("nginx:2")
}

func (w *world) testWeight(*testing.T) {
	w.completes("cells", "weight", "cell-c", "3")
	w.noDisturbance()
	w.backupIsTold("cell-a", "cell-b", "cell-c")
}

func (w *world) testDrain(*testing.T) {
	w.completes("cells", "drain", "cell-a")
	w.noDisturbance()
	w.inStep()
	w.update("nginx:3")
	w.withdrawn("cell-a")
}

// testAbort turns a change back that cannot get on, because the joining cell does not answer. The change is made by kubectl. Nobody notices:
// the cell, which has left before, is left alone until everybody has read it to its end.
func (w *world) testAbort(*testing.T) {
	w.readToItsEnd("cell-a")
	w.signal("cell-a/kube-apiserver", "pause")
	w.run("kubectl", "--context", "hub", "patch", "celltopology", "default", "--type=json", "-p",
		`[{"op":"add","path":"/spec/cells/-","value":{"name":"cell-a","weight":1,"state":"In"}}]`)
	w.interrupted(regexp.MustCompile(`, \d+ requests held`), "cells", "watch")
	var refusals []func()
	for _, second := range []string{"cells drain cell-b", "cells weight cell-b 2", "cells add cell-d"} {
		refusals = append(refusals, func() { w.refused("another change is under way: cell-a is joining", strings.Fields(second)...) })
	}
	atOnce(append(refusals, w.patchRefused)...)
	w.run("cells", "abort", "--wait=false")
	w.signal("cell-a/kube-apiserver", "resume")
	w.completes("cells", "watch")
	w.noDisturbance()
	w.readToItsEnd("cell-a")
	w.addByFlags("cell-a")
	w.inStep()
	w.noDisturbance()
}

// patchRefused expects the hub itself to refuse a second change, with what is running.
func (w *world) patchRefused() {
	w.Helper()
	output, err := w.command(w.Context(), "kubectl", "--context", "hub", "patch", "celltopology", "default", "--type=json", "-p",
		`[{"op":"add","path":"/spec/cells/-","value":{"name":"cell-d","weight":1,"state":"In"}}]`).CombinedOutput()
	if err == nil || !strings.Contains(string(output), "a change is under way") {
		w.Errorf("a second change by kubectl: %v, %s", err, output)
	}
}

// testFailover kills all processes of a cell at once, and the hub manager some time before, while everybody writes.
func (w *world) testFailover(*testing.T) {
	w.stopTouching() // what they would write from here on may be lost
	w.expectLosses()
	w.signal("cell-b/", "halt")
	w.signal("hub-manager", "resurrect")
	w.completes("cells", "failover", "cell-b")
	w.gatewayKnows()
	w.toldOfLoss("cell-b")
	w.update("nginx:4")
	w.beganAnew() // as after the restore of any etcd
	w.acceptLosses()
}

// testRejoin brings the cell back: every write that was lost is told of, and kept.
func (w *world) testRejoin(*testing.T) {
	w.signal("cell-b/", "resurrect")
	w.completes("cells", "rejoin", "cell-b")
	w.checkLosses("cell-b")
	w.noDisturbance()
	w.update("nginx:5")
}
