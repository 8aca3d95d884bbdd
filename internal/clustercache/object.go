package clustercache

import (
	"bytes"
	"time"
)

// Object is an object as clients see it.
type Object struct {
	// Cluster is its member.
	Cluster string
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name string
	// Version is the object's resourceVersion for clients.
	Version uint64
	// MemberVersion is the object's resourceVersion in its member.
	MemberVersion string
	// Stale is since when the member cannot be watched. It is zero if the member can be, or the object is not marked yet.
	Stale time.Time
	// Raw is the object in protobuf, without an envelope. Its resourceVersion is Version, and annotations have the cluster, the
	// MemberVersion, and since when it is stale.
	Raw []byte
}

// Clone returns a copy that shares no memory with o.
func (o Object) Clone() Object {
	o.Raw = bytes.Clone(o.Raw)
	return o
}
