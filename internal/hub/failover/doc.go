// Package failover takes over the share of a cell that is lost, and empties the cell if it returns.
//
// The steps of a failover are Fence (the cell's engine loses its identity in every member), Promote (the copies of the cell's objects
// become objects of the cells that keep them) and, should the cell come back, Empty (what it alone had is kept as files, then all of
// it goes). Each may be repeated at any time: what has been done is seen in the stores and in the members.
package failover
