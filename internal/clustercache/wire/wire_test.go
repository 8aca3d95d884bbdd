package wire_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
	"github.com/cellplane/cellplane/internal/clustercache/wire"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func fullPod() *corev1.Pod {
	pod := synthetic.Pod(3, 1)
	pod.Annotations[lastApplied] = `{"a":"b"}`
	pod.Annotations["cluster"] = "forged"
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: new(metav1.NewTime(time.Unix(1, 0))), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:x":{}}`)}}
	return pod
}

func marshal(t testing.TB, pod *corev1.Pod) []byte {
	t.Helper()
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestParseFindsWhatADecoderDoes(t *testing.T) {
	pod := fullPod()
	var o wire.Object
	if err := o.Parse(marshal(t, pod)); err != nil {
		t.Fatal(err)
	}
	if got := []string{string(o.Namespace), string(o.Name), string(o.UID), string(o.Version), string(o.Owner)}; !slices.Equal(got,
		[]string{pod.Namespace, pod.Name, string(pod.UID), pod.ResourceVersion, string(pod.OwnerReferences[0].UID)}) {
		t.Errorf("got %q", got)
	}
	if o.Created != pod.CreationTimestamp.Unix() {
		t.Errorf("created %d", o.Created)
	}
	labels := map[string]string{}
	for _, label := range o.Labels {
		labels[string(label.Key)] = string(label.Value)
	}
	if diff := cmp.Diff(pod.Labels, labels); diff != "" {
		t.Error(diff)
	}
	pod.OwnerReferences[0].Controller = nil
	if err := o.Parse(marshal(t, pod)); err != nil || o.Owner != nil {
		t.Errorf("an owner that is not the controller is read as %q, %v", o.Owner, err)
	}
}

func TestEdits(t *testing.T) {
	for _, test := range []struct {
		name string
		edit wire.Edit
		want func(*corev1.Pod)
	}{
		{"drops", wire.Edit{}, func(pod *corev1.Pod) {
			pod.ManagedFields = nil
			delete(pod.Annotations, lastApplied)
		}},
		{"keeps", wire.Edit{KeepManagedFields: true, KeepLastApplied: true}, func(*corev1.Pod) {}},
		{"drops annotations", wire.Edit{KeepManagedFields: true, KeepLastApplied: true, Drop: []string{"cluster", "other"}}, func(pod *corev1.Pod) {
			delete(pod.Annotations, "cluster")
		}},
		{"annotates", wire.Edit{KeepManagedFields: true, Annotations: []wire.Annotation{{Key: "cluster", Value: "m1"}, {Key: "empty"}}}, func(pod *corev1.Pod) {
			delete(pod.Annotations, lastApplied)
			pod.Annotations["cluster"], pod.Annotations["empty"] = "m1", ""
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := fullPod()
			var o wire.Object
			if err := o.Parse(marshal(t, want)); err != nil {
				t.Fatal(err)
			}
			edited, err := o.Append([]byte("before"), &test.edit)
			if err != nil {
				t.Fatal(err)
			}
			edited, ok := bytes.CutPrefix(edited, []byte("before"))
			if !ok {
				t.Fatal("Append changed the prefix")
			}
			test.want(want)
			want.ResourceVersion = "1234567890123456789"
			if err := wire.Stamp(edited, 1234567890123456789); err != nil {
				t.Fatal(err)
			}
			checkPod(t, edited, want)

			stale := wire.Annotation{Key: "stale", Value: "yes"}
			marked, err := wire.Annotated(nil, edited, stale)
			if err != nil {
				t.Fatal(err)
			}
			want.Annotations["stale"] = "yes"
			checkPod(t, marked, want)
			if got := wire.AnnotationOf(marked, "stale"); got != "yes" {
				t.Errorf("the annotation is %q", got)
			}
		})
	}
}

func checkPod(t *testing.T, raw []byte, want *corev1.Pod) {
	t.Helper()
	var got corev1.Pod
	if err := got.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Error(diff)
	}
}

func TestValues(t *testing.T) {
	pod := fullPod()
	pod.Spec.HostNetwork = true
	pod.Status.ContainerStatuses = nil
	raw := marshal(t, pod)
	want := []string{pod.Spec.NodeName, "1", "Running", "", "", "1", pod.Name}
	finder := wire.NewFinder([][]protowire.Number{{2, 10}, {2, 11}, {3, 1}, {3, 99}, {9, 9}, {1, 7}, {1, 1}})
	values, err := finder.Find([][]byte{[]byte("left over")}, raw)
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range values {
		if string(value) != want[i] {
			t.Errorf("path %d: got %q, want %q", i, value, want[i])
		}
	}
	if _, err := wire.NewFinder([][]protowire.Number{{1, 7, 1}}).Find(nil, raw); err == nil {
		t.Error("a number was read as a message")
	}
	// Of repeated fields the last one counts, as in a decoder.
	again := append(slices.Clone(raw), 3<<3|2, 9, 1<<3|2, 7)
	if values, err = finder.Find(values, append(again, "Pending"...)); err != nil || string(values[2]) != "Pending" {
		t.Errorf("got %q, %v", values[2], err)
	}
}

func TestHostileObjectsAreRefused(t *testing.T) {
	pod := func(change func(*corev1.Pod)) []byte {
		pod := fullPod()
		change(pod)
		return marshal(t, pod)
	}
	whole := pod(func(*corev1.Pod) {})
	for name, raw := range map[string][]byte{
		"nothing":        nil,
		"no metadata":    protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), ""),
		"two metadata":   append(slices.Clone(whole), whole...),
		"metadata is 7":  {1 << 3, 7},
		"cut short":      whole[:len(whole)/2],
		"a group":        append(slices.Clone(whole), 9<<3|3, 9<<3|4),
		"no name":        pod(func(p *corev1.Pod) { p.Name = "" }),
		"a long name":    pod(func(p *corev1.Pod) { p.Name = string(bytes.Repeat([]byte("n"), 254)) }),
		"a path as name": pod(func(p *corev1.Pod) { p.Name = "a/b" }),
		"a path as home": pod(func(p *corev1.Pod) { p.Namespace = "a/b" }),
		"a broken label": pod(func(p *corev1.Pod) { p.Labels["a\x00b"] = "c" }),
		"field zero":     append(slices.Clone(whole), 0, 0),
		"a false length": append(slices.Clone(whole), 2<<3|2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
	} {
		t.Run(name, func(t *testing.T) {
			var o wire.Object
			if err := o.Parse(raw); err == nil {
				t.Error("accepted")
			}
		})
	}
	if err := wire.Stamp([]byte("\n\x05nonono"), 1); err == nil {
		t.Error("stamping bytes that are not an object succeeded")
	}
}

func TestTheLastOfEqualLabelsCounts(t *testing.T) {
	raw := marshal(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"z": "1"}}})
	metadata, _ := protowire.ConsumeBytes(raw[1:])
	for _, label := range []string{"\n\x01a\x12\x011", "\n\x01z\x12\x012"} {
		metadata = protowire.AppendString(protowire.AppendTag(slices.Clone(metadata), 11, protowire.BytesType), label)
	}
	var o wire.Object
	if err := o.Parse(protowire.AppendBytes([]byte{1<<3 | 2}, metadata)); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s", o.Labels); got != "[{a 1} {z 2}]" {
		t.Errorf("got %s", got)
	}
}

// FuzzParse checks that a decoder reads any accepted input as the same object after editing.
func FuzzParse(f *testing.F) {
	f.Add(marshal(f, fullPod()))
	f.Add(marshal(f, synthetic.Pod(49, 0)))
	f.Add(marshal(f, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var o wire.Object
		if o.Parse(raw) != nil {
			return
		}
		edited, err := o.Append(nil, &wire.Edit{KeepManagedFields: true, KeepLastApplied: true, Annotations: []wire.Annotation{{Key: "k", Value: "v"}}})
		if err != nil {
			return // parts that Parse does not read are malformed
		}
		if err := wire.Stamp(edited, 1234567890123456789); err != nil {
			t.Fatal(err)
		}
		values, findErr := wire.NewFinder([][]protowire.Number{{2, 10}, {3, 1}, {1, 1}}).Find(nil, edited)
		var before, after corev1.Pod
		if before.Unmarshal(raw) != nil {
			return
		}
		if err := after.Unmarshal(edited); err != nil {
			t.Fatalf("a decoder refuses the edited object: %v", err)
		}
		if before.Name != string(o.Name) || before.Namespace != string(o.Namespace) || before.ResourceVersion != string(o.Version) || len(before.Labels) != len(o.Labels) {
			t.Fatalf("a decoder reads %v", before.ObjectMeta)
		}
		if findErr != nil || string(values[0]) != before.Spec.NodeName || string(values[1]) != string(before.Status.Phase) || string(values[2]) != before.Name {
			t.Fatalf("a decoder reads %v, Find returned %q, %v", before, values, findErr)
		}
		before.ResourceVersion = "1234567890123456789"
		metav1.SetMetaDataAnnotation(&before.ObjectMeta, "k", "v")
		if diff := cmp.Diff(&before, &after); diff != "" {
			t.Fatal(diff)
		}
	})
}
