// Package failover takes over the slots of a lost cell, and empties the cell if it returns.
//
// The steps of a Takeover are: the cell's engine loses its identity in every member; the copies of the cell's objects
// become objects of the backup cells (Promotion); should the cell return, it is emptied (Emptying) after its
// unreplicated objects were saved as files. Each step may be repeated at any time: what has been done is visible in
// the stores and in the members.
package failover
