package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// enveloped encodes an object as API servers do.
func enveloped(t testing.TB, object interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}
	encoded, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), encoded...)
}

func newPod(name, version string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version, Annotations: annotations}, Spec: corev1.PodSpec{NodeName: "n"}}
}

func newEvent(t testing.TB, kind string, pod *corev1.Pod) []byte {
	t.Helper()
	event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: enveloped(t, pod)}}
	frame, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func framed(frame []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

func TestEvents(t *testing.T) {
	stream := append(framed(newEvent(t, "ADDED", newPod("web", "7", nil))), framed(newEvent(t, "BOOKMARK", newPod("", "9", map[string]string{"k8s.io/initial-events-end": "true"})))...)
	events := frames{reader: bytes.NewReader(stream)}
	for _, want := range []struct {
		kind, version string
		end           bool
	}{{"ADDED", "7", false}, {"BOOKMARK", "9", true}} {
		frame, err := events.next()
		if err != nil {
			t.Fatal(err)
		}
		e, err := parseEvent(frame)
		if err != nil {
			t.Fatal(err)
		}
		version, end, err := position(e.raw)
		if err != nil || string(e.kind) != want.kind || version != want.version || end != want.end {
			t.Errorf("read %s at %s, end %v, %v; want %v", e.kind, version, end, err, want)
		}
	}
	if _, err := events.next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last event: %v", err)
	}
}

func TestFrameTooLarge(t *testing.T) {
	events := frames{reader: bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff})}
	if _, err := events.next(); !errors.Is(err, errMalformed) {
		t.Errorf("a frame of 4 GiB: %v", err)
	}
}

func TestPage(t *testing.T) {
	remaining := int64(3)
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "more", RemainingItemCount: &remaining}, Items: []corev1.Pod{*newPod("a", "1", nil), *newPod("b", "2", nil)}}
	p, err := parsePage(enveloped(t, list))
	if err != nil || p.version != "42" || p.marker != "more" || len(p.items) != 2 {
		t.Fatalf("the page is %v, %v", p, err)
	}
	var second corev1.Pod
	if err := second.Unmarshal(p.items[1]); err != nil || second.Name != "b" {
		t.Errorf("the second item is %v, %v", second, err)
	}
	if _, err := parsePage(enveloped(t, &corev1.PodList{})); !errors.Is(err, errMalformed) {
		t.Errorf("a list without a version: %v", err)
	}
}

// FuzzEvent reads frames of a hostile member. Nothing may panic, and an object never exceeds its frame.
func FuzzEvent(f *testing.F) {
	f.Add(newEvent(f, "ADDED", newPod("web", "7", nil)))
	f.Add(newEvent(f, "DELETED", newPod("web", "8", map[string]string{"a": "b"})))
	f.Add([]byte{0x12, 0x80})
	f.Fuzz(func(t *testing.T, frame []byte) {
		e, err := parseEvent(frame)
		if err != nil {
			return
		}
		if len(e.raw) > len(frame) || len(e.kind) == 0 {
			t.Errorf("a frame of %d bytes has an object of %d bytes and type %q", len(frame), len(e.raw), e.kind)
		}
		_, _, _ = position(e.raw) // it may fail, but not panic
		_, _ = parsePage(frame)
	})
}
