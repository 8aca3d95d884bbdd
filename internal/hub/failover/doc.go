// Package failover takes over the share of a cell that is lost, and empties the cell if it returns.
//
// The steps of a Takeover are: the cell's engine loses its identity in every member, the copies of the cell's objects become objects of
// the cells that keep them (Promotion) and, should the cell come back, it is emptied (Emptying) after what it alone had is kept as
// files. Each may be repeated at any time: what has been done is seen in the stores and in the members.
package failover
