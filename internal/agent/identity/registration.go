package identity

// Registration describes a cluster that registers. It is the value of names.RegistrationAnnotation.
type Registration struct {
	// ID is the UID of the namespace kube-system of the cluster.
	ID string `json:"id"`
	// Provider, Region and Zones are those of the Cluster.
	Provider string   `json:"provider,omitempty"`
	Region   string   `json:"region,omitempty"`
	Zones    []string `json:"zones,omitempty"`
}

// RequestPrefix begins the names of the CertificateSigningRequests that a bootstrap token with this ID may read.
func RequestPrefix(tokenID string) string { return "agent-" + tokenID + "-" }
