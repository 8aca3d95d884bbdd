package clustercache

import (
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind describes the objects of a Store.
type Kind struct {
	// GroupVersionKind is the kind of the encoded objects, such as v1 Pod.
	GroupVersionKind schema.GroupVersionKind
	// Resource is the plural name for messages, such as pods.
	Resource string
	// Namespaced is set if the objects are in namespaces.
	Namespaced bool
	// Separate is set if objects of one namespace and name in several members are all shown, one after the other by cluster. Otherwise one
	// of them is, as the informers of clients need.
	Separate bool
	// ClusterAnnotation is the annotation that names the member of an object; the default is names.ClusterAnnotation.
	ClusterAnnotation string
	// Fields are the selectable fields, besides metadata.name and metadata.namespace.
	Fields []Field
}

// Field is a selectable field.
type Field struct {
	// Name is its name in selectors, such as spec.nodeName.
	Name string
	// Paths lead to its value in the encoded object. The first that leads to a value that is not empty counts.
	Paths [][]protowire.Number
	// Type is the encoding of the value.
	Type FieldType
	// Indexed fields have an index; others are compared. At most two fields of a kind can be indexed.
	Indexed bool
	// Distinct fields have about as many values as there are objects. They are read from the object itself, which is slow to query and
	// needs no memory.
	Distinct bool
}

// FieldType is the encoding of a Field's value.
type FieldType int

const (
	// StringField is a string; without a value it is empty.
	StringField FieldType = iota
	// BoolField is a boolean; without a value it is "false".
	BoolField
	// IntField is an integer; without a value it is "0".
	IntField
)

// Pods are the pods of the members.
func Pods() Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:         "pods",
		Namespaced:       true,
		Fields: []Field{
			{Name: "spec.nodeName", Paths: path(2, 10), Indexed: true},
			{Name: "spec.restartPolicy", Paths: path(2, 3)},
			{Name: "spec.schedulerName", Paths: path(2, 19)},
			{Name: "spec.serviceAccountName", Paths: path(2, 8)},
			{Name: "spec.hostNetwork", Paths: path(2, 11), Type: BoolField},
			{Name: "status.phase", Paths: path(3, 1)},
			{Name: "status.podIP", Paths: path(3, 6), Distinct: true},
			{Name: "status.nominatedNodeName", Paths: path(3, 11)},
		},
	}
}

// Events are the events of the members, as v1 encodes them.
func Events() Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Event"},
		Resource:         "events",
		Namespaced:       true,
		Fields: []Field{
			{Name: "involvedObject.kind", Paths: path(2, 1)},
			{Name: "involvedObject.namespace", Paths: path(2, 2)},
			{Name: "involvedObject.name", Paths: path(2, 3), Indexed: true},
			{Name: "involvedObject.uid", Paths: path(2, 4), Indexed: true},
			{Name: "involvedObject.apiVersion", Paths: path(2, 5)},
			{Name: "involvedObject.resourceVersion", Paths: path(2, 6), Distinct: true},
			{Name: "involvedObject.fieldPath", Paths: path(2, 7)},
			{Name: "reason", Paths: path(3)},
			{Name: "reportingComponent", Paths: path(14)},
			{Name: "source", Paths: [][]protowire.Number{{5, 1}, {14}}},
			{Name: "type", Paths: path(9)},
		},
	}
}

// Nodes are the nodes of the members.
func Nodes() Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Node"},
		Resource:         "nodes",
		Fields:           []Field{{Name: "spec.unschedulable", Paths: path(2, 4), Type: BoolField}},
	}
}

// ReplicaSets are the replica sets of the members.
func ReplicaSets() Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
		Resource:         "replicasets",
		Namespaced:       true,
		Fields:           []Field{{Name: "status.replicas", Paths: path(3, 1), Type: IntField}},
	}
}

func path(numbers ...protowire.Number) [][]protowire.Number { return [][]protowire.Number{numbers} }
