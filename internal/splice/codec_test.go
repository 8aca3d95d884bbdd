package splice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing/iotest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// The encoders and decoders of API servers are the oracles of this package's tests.
var (
	scheme          = newScheme()
	jsonSerializer  = k8sjson.NewSerializerWithOptions(k8sjson.DefaultMetaFactory, scheme, scheme, k8sjson.SerializerOptions{StreamingCollectionsEncoding: true})
	protoSerializer = protobuf.NewSerializerWithOptions(scheme, scheme, protobuf.SerializerOptions{StreamingCollectionsEncoding: true})
	rawSerializer   = protobuf.NewRawSerializer(scheme, scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}

func encodeWith(e runtime.Encoder, object runtime.Object) []byte {
	var b bytes.Buffer
	utilruntime.Must(e.Encode(object, &b))
	return b.Bytes()
}

type deployments = []appsv1.Deployment

// listCodec is an encoding of lists.
type listCodec struct {
	name   string
	encode func(metav1.ListMeta, deployments) []byte
	merge  func(io.Writer, [][]byte, ListOptions) (Page, error)
	decode func([]byte) (metav1.ListMeta, deployments, error)
}

var deploymentList = metav1.TypeMeta{Kind: "DeploymentList", APIVersion: "apps/v1"}

var listCodecs = []listCodec{
	{
		name: "json",
		encode: func(meta metav1.ListMeta, items deployments) []byte {
			return encodeWith(jsonSerializer, &appsv1.DeploymentList{TypeMeta: deploymentList, ListMeta: meta, Items: items})
		},
		merge:  mergeInPieces,
		decode: func(b []byte) (metav1.ListMeta, deployments, error) { return decodeList(jsonSerializer, b) },
	},
	{
		name: "json of custom resources",
		encode: func(meta metav1.ListMeta, items deployments) []byte {
			typed := &appsv1.DeploymentList{TypeMeta: deploymentList, ListMeta: meta, Items: items}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
			utilruntime.Must(err)
			list := &unstructured.UnstructuredList{}
			list.SetUnstructuredContent(content)
			return encodeWith(jsonSerializer, list)
		},
		merge:  mergeInPieces,
		decode: func(b []byte) (metav1.ListMeta, deployments, error) { return decodeList(jsonSerializer, b) },
	},
	{
		name: "json with white space",
		encode: func(meta metav1.ListMeta, items deployments) []byte {
			var b bytes.Buffer
			compact := encodeWith(jsonSerializer, &appsv1.DeploymentList{TypeMeta: deploymentList, ListMeta: meta, Items: items})
			utilruntime.Must(json.Indent(&b, compact, " ", "\t"))
			return b.Bytes()
		},
		merge:  mergeInPieces,
		decode: func(b []byte) (metav1.ListMeta, deployments, error) { return decodeList(jsonSerializer, b) },
	},
	{
		name: "protobuf",
		encode: func(meta metav1.ListMeta, items deployments) []byte {
			return encodeWith(protoSerializer, &appsv1.DeploymentList{TypeMeta: deploymentList, ListMeta: meta, Items: items})
		},
		merge: func(w io.Writer, bodies [][]byte, options ListOptions) (Page, error) {
			return MergeProto(w, inPieces(bodies), options)
		},
		decode: func(b []byte) (metav1.ListMeta, deployments, error) { return decodeList(protoSerializer, b) },
	},
	{
		name:   "table",
		encode: encodeTable,
		merge: func(w io.Writer, bodies [][]byte, options ListOptions) (Page, error) {
			return MergeTables(w, inPieces(bodies), TableOptions{ListOptions: options})
		},
		decode: decodeTable,
	},
}

// inPieces returns readers that cut the bodies in awkward places.
func inPieces(bodies [][]byte) []io.Reader {
	readers := make([]io.Reader, len(bodies))
	for i, body := range bodies {
		readers[i] = bytes.NewReader(body)
		if i%2 == 0 {
			readers[i] = iotest.OneByteReader(readers[i])
		} else {
			readers[i] = iotest.DataErrReader(readers[i])
		}
	}
	return readers
}

func mergeInPieces(w io.Writer, bodies [][]byte, options ListOptions) (Page, error) {
	return MergeJSON(w, inPieces(bodies), options)
}

func decodeList(d runtime.Decoder, b []byte) (metav1.ListMeta, deployments, error) {
	object, gvk, err := d.Decode(b, nil, nil)
	if err != nil {
		return metav1.ListMeta{}, nil, err
	}
	if gvk.Kind != "DeploymentList" || gvk.Version != "v1" || gvk.Group != "apps" {
		return metav1.ListMeta{}, nil, fmt.Errorf("the list is a %v", gvk)
	}
	list := object.(*appsv1.DeploymentList)
	return list.ListMeta, withoutTypes(list.Items), nil
}

// withoutTypes removes traces of the encoding from decoded objects: the types, and white space in raw JSON.
func withoutTypes(items deployments) deployments {
	out := make(deployments, len(items))
	for i := range items {
		out[i] = *items[i].DeepCopy()
		out[i].TypeMeta = metav1.TypeMeta{}
		for _, entry := range out[i].ManagedFields {
			var compact bytes.Buffer
			utilruntime.Must(json.Compact(&compact, entry.FieldsV1.GetRawBytes()))
			entry.FieldsV1.SetRawBytes(compact.Bytes())
		}
	}
	return out
}

func encodeTable(meta metav1.ListMeta, items deployments) []byte {
	table := &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, ListMeta: meta,
		ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name", Type: "string"}, {Name: "Age", Type: "string", Description: "since {creation}"}},
	}
	for i := range items {
		item := items[i]
		item.TypeMeta = metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells:  []any{item.Name, `5"d`},
			Object: runtime.RawExtension{Raw: bytes.TrimSpace(encodeWith(jsonSerializer, &item))},
		})
	}
	return encodeWith(jsonSerializer, table)
}

func decodeTable(b []byte) (metav1.ListMeta, deployments, error) {
	object, _, err := jsonSerializer.Decode(b, nil, nil)
	if err != nil {
		return metav1.ListMeta{}, nil, err
	}
	table := object.(*metav1.Table)
	items := deployments{}
	for _, row := range table.Rows {
		if len(row.Cells) != len(table.ColumnDefinitions) {
			return metav1.ListMeta{}, nil, fmt.Errorf("a row has %d cells for %d columns", len(row.Cells), len(table.ColumnDefinitions))
		}
		object, _, err := jsonSerializer.Decode(row.Object.Raw, nil, nil)
		if err != nil {
			return metav1.ListMeta{}, nil, err
		}
		items = append(items, *object.(*appsv1.Deployment))
	}
	return table.ListMeta, withoutTypes(items), nil
}
