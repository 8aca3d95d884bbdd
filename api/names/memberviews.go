package names

// Annotations that the cluster-gateway adds to member objects in responses. They are never written to a member.
const (
	// ClusterAnnotation names the member that an object lives in.
	ClusterAnnotation = ClusterLabel
	// MemberVersionAnnotation is the object's resourceVersion in that member.
	MemberVersionAnnotation = "cellplane.io/member-resource-version"
	// StaleSinceAnnotation is since when the member could not be watched, in RFC 3339.
	StaleSinceAnnotation = "cellplane.io/stale-since"
	// CachedFromClusterAnnotation is Karmada's name of ClusterAnnotation, on objects that ResourceRegistries select.
	CachedFromClusterAnnotation = "resource.karmada.io/cached-from-cluster"
	// ContestedAnnotation is on watch events from sharded cluster-gateways to gateways: objects of this name are,
	// or were recently, in several clusters, and the gateway has to decide which one is shown.
	ContestedAnnotation = "cellplane.io/contested"
)

// SearchAddressesAnnotation is on a Secret with the credentials for a search engine. It names the addresses that they may be sent to,
// separated by commas or spaces; without it any that a ResourceRegistry has.
const SearchAddressesAnnotation = "cellplane.io/search-addresses"
