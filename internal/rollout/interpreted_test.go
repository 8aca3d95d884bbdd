package rollout

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

func fleet(annotations map[string]string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "games.example/v1", "kind": "GameFleet", "metadata": map[string]any{"name": "f", "generation": int64(4), "resourceVersion": "17"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{}}}},
	}}
	obj.SetAnnotations(annotations)
	return obj
}

// The Work of an interpreted kind tells its command without the interpreter, also the first one.
func TestMarkOfInterpretedKind(t *testing.T) {
	if c := CopyOf(fleet(nil)); c != nil {
		t.Errorf("a manifest without a mark says %+v", c)
	}
	says := &configv1alpha1.WorkloadRollout{Replicas: 10, MaxSurge: ptr.To(intstr.FromString("25%")), Paused: true}
	asks, err := InterpretedCopy(fleet(nil), says)
	if err != nil {
		t.Fatal(err)
	}
	revision := RevisionOf(fleet(nil))
	if want := (Command{Replicas: 10, Surge: 3, Revision: revision, Paused: true}); asks.Seq != 1 || asks.Command != want {
		t.Errorf("it asks for %+v, want %+v", asks, want)
	}
	for _, seq := range []int64{1, 7} {
		entry := Entry{Seq: seq, Command: asks.Command}
		marked := entry.Mark(fleet(nil))
		if c := CopyOf(marked); c == nil || c.Seq != seq || c.Command != asks.Command {
			t.Errorf("command %d is read as %+v", seq, c)
		}
		if SeqOf(marked) != seq {
			t.Errorf("its number is %d, want %d", SeqOf(marked), seq)
		}
	}
	for _, mark := range []string{"7/" + revision, "7/r/3/1/x/false", "0/r/3/1/1/false", "7/r/3/-1/1/false", "a/b/c/d/e/f"} {
		if c := CopyOf(fleet(map[string]string{names.RolloutCommandAnnotation: mark})); c != nil {
			t.Errorf("the mark %q says %+v", mark, c)
		}
	}
}

func TestInterpretedLive(t *testing.T) {
	obj := fleet(map[string]string{names.RolloutCommandAnnotation: "7/r/3/1/0/false"})
	says := &configv1alpha1.WorkloadRollout{
		Replicas: 3, MaxSurge: ptr.To(intstr.FromInt32(1)), ObservedGeneration: 4, Pods: 4, Updated: 1, Available: 3, Terminating: 2, Failed: true,
	}
	live, err := InterpretedLive(obj, says)
	want := Observation{Version: 17, Seq: 7, Revision: "r", Current: true, Pods: 4, Updated: 1, Available: 3, Terminating: 2, Remaining: 3}
	if err != nil || live.Observation != want || !live.Stuck || live.Command.Surge != 1 || live.Command.Unavailable != 0 {
		t.Errorf("got %+v, %v; want %+v", live, err, want)
	}
	says.ObservedGeneration = 3
	if live, err := InterpretedLive(obj, says); err != nil || live.Observation.Current {
		t.Errorf("a status of an earlier generation: %+v, %v", live, err)
	}
	says.Available = -1
	if _, err := InterpretedLive(obj, says); err == nil {
		t.Error("a negative number of pods is accepted")
	}
	if _, err := InterpretedLive(obj, &configv1alpha1.WorkloadRollout{MaxSurge: ptr.To(intstr.FromString("many"))}); err == nil {
		t.Error("a bound that is no number is accepted")
	}
}

func TestInterpretedBounds(t *testing.T) {
	percent := ptr.To(intstr.FromString("25%"))
	for _, test := range []struct {
		says *configv1alpha1.WorkloadRollout
		kind Kind
		want Bounds
	}{
		{&configv1alpha1.WorkloadRollout{}, InterpretedInPlace, Bounds{Replicas: 10, Unavailable: 1}},
		{&configv1alpha1.WorkloadRollout{MaxUnavailable: percent}, InterpretedInPlace, Bounds{Replicas: 10, Unavailable: 2}},
		{&configv1alpha1.WorkloadRollout{MaxSurge: percent}, Interpreted, Bounds{Replicas: 10, Surge: 3}},
		{&configv1alpha1.WorkloadRollout{MaxSurge: ptr.To(intstr.FromInt32(0))}, Interpreted, Bounds{Replicas: 10, Unavailable: 1}},
	} {
		if got, err := InterpretedBounds(test.says, 10); err != nil || got != test.want || InterpretedKind(test.says) != test.kind {
			t.Errorf("%+v: %+v, %s, %v; want %+v", test.says, got, InterpretedKind(test.says), err, test.want)
		}
	}
}
