// Package quorum decides whether a gateway may acknowledge writes: its writer lease.
//
// The voters are the cells of a topology and, if these are an even number, the hub. Each has a floor, the lowest epoch that it accepts,
// which only rises. A consistent read of the floor confirms every epoch that is not below it. A gateway holds the lease at an epoch while a
// majority of the voters has confirmed the epoch by reads that were sent less than the length of the lease ago. A failover raises the floor
// at a majority of the voters of every epoch that gateways may still use, and waits for the length of the lease and a margin. Since two
// majorities share a voter, no gateway then acknowledges a write by an earlier topology: docs/design/writer-lease.md has the argument.
//
// The package has no clients and no goroutines, and decides by Instants that it is given.
package quorum
