// Package cells turns what an operator asks for (add a cell, drain one, give it another weight) into edits of a topology, and tells
// beforehand what an edit would move.
//
// The functions are pure. They refuse what the hub would refuse as well, in the operator's words.
package cells
