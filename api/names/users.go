package names

import "strings"

// GatewayUser is the user name with which a gateway authenticates to the hub, the cells and the cluster-gateways.
const GatewayUser = "system:cellplane:gateway"

// ComponentPrefix is the prefix of the user names of all components but agents. Names that begin with system: are reserved.
const ComponentPrefix = "system:cellplane:"

// IsComponent reports whether a user name is that of a component. Agents are components, too: they do in a member what engines do elsewhere.
func IsComponent(user string) bool {
	return strings.HasPrefix(user, ComponentPrefix) || strings.HasPrefix(user, AgentPrefix)
}

// EngineUser returns the user name with which the engine of a cell authenticates to the hub and the gateways. Each cell has its own, so that a failed one
// can be revoked.
func EngineUser(cell string) string { return "system:cellplane:engine:" + cell }
