// Package fleet makes connections to other control planes: cells, the hub and
// members. It owns credentials, TLS, limits and health. Package cellconn keeps
// the hub manager's connections to cells.
package fleet
