package synthetic_test

import (
	"bytes"
	"testing"

	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
)

func TestEncoderEncodesPods(t *testing.T) {
	var encoder synthetic.Encoder
	total := 0
	const pods = 600
	for i := range pods {
		for revision := range 3 {
			got, err := encoder.Encode(i, revision)
			if err != nil {
				t.Fatal(err)
			}
			pod := synthetic.Pod(i, revision)
			want, err := pod.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("pod %d in revision %d differs from its encoding by the API type", i, revision)
			}
			total += len(got)
		}
		if pod := synthetic.Pod(i, 0); pod.Namespace != synthetic.Namespace(i) || pod.Spec.NodeName != synthetic.Node(i) || pod.Labels["app"] != synthetic.App(i) {
			t.Fatalf("pod %d is %s/%s on %s", i, pod.Namespace, pod.Name, pod.Spec.NodeName)
		}
	}
	if average := total / pods / 3; average < 3000 || average > 4000 {
		t.Errorf("a pod has %d bytes, want 3 to 4 KB", average)
	}
}

func BenchmarkEncode(b *testing.B) {
	var encoder synthetic.Encoder
	i := 0
	for b.Loop() {
		if _, err := encoder.Encode(i, 0); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
