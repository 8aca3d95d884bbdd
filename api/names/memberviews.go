package names

// Annotations of member objects as the cluster-gateway shows them. They are never written to a member.
const (
	// ClusterAnnotation names the member that an object lives in.
	ClusterAnnotation = ClusterLabel
	// MemberVersionAnnotation is the object's resourceVersion in that member.
	MemberVersionAnnotation = "cellplane.io/member-resource-version"
	// StaleSinceAnnotation says since when the member could not be followed, in RFC 3339.
	StaleSinceAnnotation = "cellplane.io/stale-since"
	// ContestedAnnotation is on watch events that cluster-gateways with a share of the clusters send to gateways: objects of this name are, or were a
	// moment ago, in several clusters, and the gateway has to look which of them is shown.
	ContestedAnnotation = "cellplane.io/contested"
)
