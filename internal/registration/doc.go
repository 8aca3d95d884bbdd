// Package registration registers clusters in pull mode: an administrator creates a bootstrap token on the hub, and with it a cluster finds the
// gateway, verifies it, and gets the certificate of its agent.
package registration
