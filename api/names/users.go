package names

// GatewayUser is the user name with which a gateway authenticates to the hub, the cells and the cluster-gateways.
const GatewayUser = "system:cellplane:gateway"
