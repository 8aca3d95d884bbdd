// Package writerlease keeps the gateway's writer lease: it reads the floors of the voters often enough that a majority has confirmed the
// epoch of every write. It also reports on the hub which cells the gateway reaches.
//
// The rule is that of package quorum. A write needs the lease when it is sent, and again when its success is answered.
package writerlease
