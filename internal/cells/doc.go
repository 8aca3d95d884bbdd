// Package cells turns the operator's commands (add a cell, drain one, change its weight) into edits of a topology,
// and computes what an edit would move.
//
// The functions are pure. They refuse what the hub would refuse too, with clearer messages.
package cells
