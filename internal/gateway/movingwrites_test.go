package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testCreates makes objects of absent names, each in the cell that will own it.
func (y *yard) testCreates() {
	applied := y.name("applied", true)
	_, err := y.clients[0].AppsV1().Deployments(y.namespace).Patch(y.t.Context(), applied, types.ApplyPatchType,
		[]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"`+applied+`"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`),
		metav1.PatchOptions{FieldManager: "test"})
	must(y.t, err)
	posted, stays := y.name("posted", true), y.name("posted", false)
	y.create(0, posted)
	y.create(0, stays)
	for name, cell := range map[string]int{applied: 1, posted: 1, stays: 0} {
		if !y.inCell(cell, name) || y.inCell(1-cell, name) {
			y.t.Errorf("%s is not in cell number %d alone", name, cell)
		}
	}
	deployments := y.clients[0].AppsV1().Deployments(y.namespace)
	if _, err := deployments.Get(y.t.Context(), y.name("absent", true), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		y.t.Errorf("reading what is nowhere: %v", err)
	}
	if err := deployments.Delete(y.t.Context(), y.name("absent", true), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		y.t.Errorf("deleting what is nowhere: %v", err)
	}
	if _, err := deployments.Patch(y.t.Context(), y.name("absent", true), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		y.t.Errorf("patching what is nowhere: %v", err)
	}
}

// testWrites changes objects in every way, before they move, while they are frozen and after.
func (y *yard) testWrites() {
	deployments := y.clients[0].AppsV1().Deployments(y.namespace)
	ctx := y.t.Context()
	patch := func(kind types.PatchType, body string) func(string) error {
		return func(name string) error {
			_, err := deployments.Patch(ctx, name, kind, []byte(strings.ReplaceAll(body, "NAME", name)), metav1.PatchOptions{FieldManager: managerFor(kind)})
			return err
		}
	}
	for kind, write := range map[string]func(name string) error{
		"update": func(name string) error {
			_, err := deployments.Update(ctx, movable(name, "written"), metav1.UpdateOptions{})
			return err
		},
		"json":      patch(types.JSONPatchType, `[{"op":"replace","path":"/metadata/annotations/value","value":"written"}]`),
		"merge":     patch(types.MergePatchType, `{"metadata":{"annotations":{"value":"written"}}}`),
		"strategic": patch(types.StrategicMergePatchType, `{"metadata":{"annotations":{"value":"written"}}}`),
		"apply":     patch(types.ApplyPatchType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME","annotations":{"applied":"written"}}}`),
		"delete":    func(name string) error { return deployments.Delete(ctx, name, metav1.DeleteOptions{}) },
		"scale": func(name string) error {
			_, err := deployments.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
			return err
		},
		"status": func(name string) error {
			_, err := deployments.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"replicas":3}}`), metav1.PatchOptions{}, "status")
			return err
		},
	} {
		y.testWrite(kind, write)
	}
}

func managerFor(kind types.PatchType) string {
	if kind == types.ApplyPatchType {
		return "test"
	}
	return ""
}

func (y *yard) testWrite(kind string, write func(name string) error) {
	before, during, after := y.name(kind+"-before", true), y.name(kind+"-during", true), y.name(kind+"-after", true)
	var journeys []*journey
	for _, name := range []string{before, during, after} {
		// They are where they were before the change.
		_, err := y.direct[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(name, "0"), metav1.CreateOptions{})
		must(y.t, err)
		journeys = append(journeys, y.journey(name))
	}
	must(y.t, write(before))
	if y.read(1, before) != nil {
		y.t.Errorf("%s: an object that has not moved was written to in the new cell", kind)
	}
	journeys[1].freeze()
	left := y.read(0, during).ResourceVersion
	done := make(chan error, 1)
	go func() { done <- write(during) }()
	y.waitHeld()
	journeys[1].copy()
	journeys[1].commit()
	select {
	case err := <-done:
		y.t.Errorf("%s: a write to an object that is not active anywhere was answered: %v", kind, err)
		return
	default:
	}
	committed := y.read(0, during).ResourceVersion
	if committed == left {
		y.t.Errorf("%s: the object has not been committed", kind)
	}
	journeys[1].activate()
	if err := <-done; err != nil {
		y.t.Errorf("%s: a held write: %v", kind, err)
	}
	if y.read(0, during).ResourceVersion != committed {
		y.t.Errorf("%s: what was left behind has been written to", kind)
	}
	journeys[2].freeze()
	journeys[2].copy()
	journeys[2].commit()
	journeys[2].activate()
	must(y.t, write(after))
	for _, name := range []string{during, after} {
		got := y.read(1, name)
		switch {
		case kind == "delete":
			if got != nil && got.DeletionTimestamp == nil {
				y.t.Errorf("delete: %s is still there", name)
			}
		case got == nil || got.Annotations["value"] != "written" && got.Annotations["applied"] != "written" && *got.Spec.Replicas != 3 && got.Status.Replicas != 3:
			y.t.Errorf("%s: %s was not written: %+v", kind, name, got)
		}
	}
}

// waitHeld waits until a gateway holds a request.
func (y *yard) waitHeld() {
	y.t.Helper()
	y.waitMetric("cellplane_gateway_held_requests")
}

// waitMetric waits until a metric of the gateways is not zero.
func (y *yard) waitMetric(name string) {
	y.t.Helper()
	testenv.Eventually(y.t, name+" is not zero", func(ctx context.Context) (bool, error) {
		metrics, err := y.clients[0].Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(string(metrics)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
				return value != "0", nil
			}
		}
		return false, errors.New("there is no such metric")
	})
}

// testLateWrite freezes an object while a write is on its way to it.
func (y *yard) testLateWrite() {
	name := y.name("late", true)
	_, err := y.direct[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(name, "0"), metav1.CreateOptions{})
	must(y.t, err)
	y.get(0, name)
	server, err := y.Cells[0].Process(kubebin.KubeAPIServer)
	must(y.t, err)
	must(y.t, server.Pause())
	done := make(chan error, 1)
	go func() {
		_, err := y.clients[0].AppsV1().Deployments(y.namespace).Patch(y.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"value":"late"}}}`), metav1.PatchOptions{})
		done <- err
	}()
	j := y.journey(name)
	j.freeze()
	must(y.t, server.Resume())
	j.copy()
	j.commit()
	j.activate()
	must(y.t, <-done)
	if got := y.get(0, name); got.Annotations["value"] != "late" {
		y.t.Errorf("a write that was on its way is lost: %v", got.Annotations)
	}
}

// testDeleteCollection deletes objects in all stages of their moves.
func (y *yard) testDeleteCollection() {
	var journeys []*journey
	for i := range 5 {
		name := y.name(fmt.Sprintf("collected-%d", i), true)
		made := movable(name, "0")
		made.Labels = map[string]string{"collected": "yes"}
		_, err := y.direct[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), made, metav1.CreateOptions{})
		must(y.t, err)
		journeys = append(journeys, y.journey(name))
	}
	steps := func(j *journey) []func() { return []func(){j.freeze, j.copy, j.commit, j.activate} }
	for i, j := range journeys {
		for _, step := range steps(j)[:i] {
			step()
		}
	}
	done := make(chan error, 1)
	go func() {
		done <- y.clients[0].AppsV1().Deployments(y.namespace).DeleteCollection(y.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "collected=yes"})
	}()
	y.waitHeld()
	for i, j := range journeys[1:4] {
		for _, step := range steps(j)[i+1:] {
			step()
		}
	}
	must(y.t, <-done)
	left, err := y.clients[0].AppsV1().Deployments(y.namespace).List(y.t.Context(), metav1.ListOptions{LabelSelector: "collected=yes"})
	must(y.t, err)
	if len(left.Items) != 0 {
		y.t.Errorf("%d objects were not deleted", len(left.Items))
	}
}
