// Package cellconn holds the hub manager's connections to the cells: clients for their API servers, their fences and their stores.
//
// A Pool makes each of them when it is first needed, from the Cell and the Secrets that it refers to. When one of these changes, the next
// Get returns new connections and closes the old ones. Users of an old one get errors, and have to Get the cell again.
//
// Credentials and TLS are package fleet's, which gateways use too.
package cellconn
