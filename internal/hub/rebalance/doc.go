// Package rebalance carries out changes of the topology: it moves objects from the cells that owned them to the cells that will.
//
// state.go is the heart: given what the old and the new cell hold of an object, it names the one thing to do next. It knows neither
// clients nor clocks. The Mover does these things, for all objects of a slot together and for many slots at once; everything it has to
// know after a crash is on the objects. The Controller takes a change through its phases: it fences the former epoch off, lets the
// Mover run, ends the change, and removes what was left behind when its time has come.
//
// Why no write is lost on the way is argued in docs/design/cell-migration.md.
package rebalance
