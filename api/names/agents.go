package names

// Names that belong to agents, the programs that execute the Works of a cluster in pull mode.
const (
	// AgentPrefix begins the user names of agents, see AgentUser.
	AgentPrefix = "system:karmada:agent:"
	// AgentsGroup is the group of all agents.
	AgentsGroup = "system:karmada:agents"
	// AgentRBACGenerator is not the name of a cluster: in Karmada, the user AgentPrefix with this name may create Roles.
	AgentRBACGenerator = "rbac-generator"
	// AgentBootstrapGroup is the group of the bootstrap tokens with which clusters register. Its members may do nothing else.
	AgentBootstrapGroup = "system:bootstrappers:karmada:default-cluster-token"
	// AgentSecret is the Secret of a member in which its agent finds its kubeconfig, in SystemNamespace, and also the key in it.
	AgentSecret = "karmada-kubeconfig"

	// AgentLabel with the value AgentMetrics marks the Clusters in push mode whose agent has credentials to report metrics.
	AgentLabel = "cellplane.io/agent"
	// AgentMetrics is the value of AgentLabel.
	AgentMetrics = "metrics"

	// AgentKeysAnnotation on a Cluster lists the public keys of its agent: their SHA-256 sums, each as "sum=time" with the end of its
	// certificate, separated by commas. Gateways accept no others.
	AgentKeysAnnotation = "cellplane.io/agent-keys"
	// RegistrationAnnotation on a CertificateSigningRequest describes, as JSON, the cluster that registers by it.
	RegistrationAnnotation = "cellplane.io/registration"
)

// AgentUser returns the user name with which the agent of a cluster authenticates to the gateways. It is in the group AgentsGroup.
func AgentUser(cluster string) string { return AgentPrefix + cluster }
