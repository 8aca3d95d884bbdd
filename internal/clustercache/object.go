package clustercache

import (
	"bytes"
	"time"
)

// Object is an object as clients see it.
type Object struct {
	// Cluster is the member it lives in.
	Cluster string
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name string
	// Version is the object's resourceVersion for clients.
	Version uint64
	// MemberVersion is the object's resourceVersion in its member.
	MemberVersion string
	// Stale is since when the member cannot be followed; it is zero for a member that can, or whose objects do not say so yet.
	Stale time.Time
	// Raw is the object encoded as protobuf, without an envelope. It carries Version as its resourceVersion, and the annotations that
	// name the cluster, the MemberVersion, and since when it is stale.
	Raw []byte
}

// Clone returns a copy that shares no memory with o.
func (o Object) Clone() Object {
	o.Raw = bytes.Clone(o.Raw)
	return o
}
