// Package router is the last handler of a gateway's chain: it sends every request to where its objects live.
//
// A request for one object goes to the cell of its slot and comes back as it is. Lists, watches and deletions of collections go to
// all cells and are merged. What is not cut into cells goes to the hub, and clusters/{name}/proxy to a member.
package router
