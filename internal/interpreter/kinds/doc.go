// Package kinds describes what a kind means to the federation, and holds the parts such descriptions are made of.
//
// A Kind is a set of pure functions: none changes the objects it is given. Functions that return an object return
// the one they were given if nothing has to change, and otherwise a new one that shares with it everything unchanged;
// callers that want to edit a result in place must copy it first.
package kinds
