package splice

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// typical returns a Deployment about as large as those of real clusters.
func typical(i int) appsv1.Deployment {
	name := fmt.Sprintf("app-%05d", i)
	labels := map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "team": "payments"}
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: fmt.Sprintf("team-%d", i%50), UID: "d290f1ee-6c54-4b01-90e6-d701748f0851", ResourceVersion: strconv.Itoa(100000 + i), Generation: 3,
			Labels: labels, Annotations: map[string]string{"deployment.kubernetes.io/revision": "3"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Apply", APIVersion: "apps/v1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:app.kubernetes.io/name":{},"f:team":{}}},"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:name":{}}}}}}}`)}},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/shop/" + name + ":v1.2.3",
				Env: []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "REGION", Value: "eu"}}, Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
			}}}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 3, ReadyReplicas: 3, Conditions: []appsv1.DeploymentCondition{{Type: "Available", Status: "True", Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability."}}},
	}
}

// tenThousand returns 10 000 Deployments in the answers of three cells.
func tenThousand(encoder runtime.Encoder) [][]byte {
	lists := make([]appsv1.DeploymentList, 3)
	for i := range 10_000 {
		list := &lists[(i/50)%3]
		list.Items = append(list.Items, typical(i))
	}
	bodies := make([][]byte, len(lists))
	for i := range lists {
		lists[i].TypeMeta = deploymentList
		lists[i].ResourceVersion = "5"
		sortByKey(lists[i].Items)
		bodies[i] = encodeWith(encoder, &lists[i])
	}
	return bodies
}

func sortByKey(items deployments) {
	slices.SortFunc(items, func(a, b appsv1.Deployment) int { return cmp.Compare(key(&a), key(&b)) })
}

func decodeAndEncode(w io.Writer, decoder runtime.Decoder, encoder runtime.Encoder, bodies [][]byte) error {
	all := &appsv1.DeploymentList{TypeMeta: deploymentList}
	for _, body := range bodies {
		object, _, err := decoder.Decode(body, nil, nil)
		if err != nil {
			return err
		}
		all.Items = append(all.Items, object.(*appsv1.DeploymentList).Items...)
	}
	sortByKey(all.Items)
	return encoder.Encode(all, w)
}

func inMemory(bodies [][]byte) []io.Reader {
	readers := make([]io.Reader, len(bodies))
	for i, body := range bodies {
		readers[i] = bytes.NewReader(body)
	}
	return readers
}

func BenchmarkMerge(b *testing.B) {
	options := ListOptions{Finish: finishPlain}
	for _, bench := range []struct {
		name   string
		bodies [][]byte
		merge  func(bodies [][]byte) error
	}{
		{"json/splice", tenThousand(jsonSerializer), func(bodies [][]byte) error {
			_, err := MergeJSON(io.Discard, inMemory(bodies), options)
			return err
		}},
		{"json/decode", tenThousand(jsonSerializer), func(bodies [][]byte) error {
			return decodeAndEncode(io.Discard, jsonSerializer, jsonSerializer, bodies)
		}},
		{"protobuf/splice", tenThousand(protoSerializer), func(bodies [][]byte) error {
			_, err := MergeProto(io.Discard, inMemory(bodies), options)
			return err
		}},
		{"protobuf/choose", tenThousand(protoSerializer), func(bodies [][]byte) error {
			choosing := options
			choosing.Choose = func([]*Item) int { return 0 }
			_, err := MergeProto(io.Discard, inMemory(bodies), choosing)
			return err
		}},
		{"protobuf/decode", tenThousand(protoSerializer), func(bodies [][]byte) error {
			return decodeAndEncode(io.Discard, protoSerializer, protoSerializer, bodies)
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			size := 0
			for _, body := range bench.bodies {
				size += len(body)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.merge(bench.bodies); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStamp measures what the version of an object adds to a read or a write of it.
func BenchmarkStamp(b *testing.B) {
	object := typical(1)
	object.TypeMeta = metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}
	for _, codec := range []struct {
		name, mediaType string
		encoder         runtime.Encoder
	}{{"json", "application/json", jsonSerializer}, {"protobuf", ProtobufContentType, protoSerializer}} {
		body := encodeWith(codec.encoder, &object)
		b.Run(codec.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Stamp(codec.mediaType, body, stamped); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEvent(b *testing.B) {
	for _, codec := range watchCodecs {
		object := typical(1)
		object.TypeMeta = metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}
		framed := codec.encode(Modified, &object)
		raw := framed
		if codec.encoding == Protobuf {
			raw = framed[4:]
		}
		version := "1" + fmt.Sprintf("%010d", 7) + fmt.Sprintf("%019d", 5) + fmt.Sprintf("%019d", 6) + fmt.Sprintf("%019d", 8)
		b.Run(codec.name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			var out []byte
			for b.Loop() {
				event, err := ParseEvent(raw, codec.encoding)
				if err != nil {
					b.Fatal(err)
				}
				out = event.Append(out[:0], version)
			}
		})
	}
}
