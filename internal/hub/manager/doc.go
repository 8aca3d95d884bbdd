// Package manager runs what the hub does by itself: it copies global objects into the cells, keeps policies identified,
// looks after clusters, and installs the rules of the API. Of several replicas the one that holds the Lease works, and
// the others wait for it.
//
// Options become a Config by Complete and Validate, and a Config is what can be run.
package manager
