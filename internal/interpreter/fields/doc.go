// Package fields reads and changes single fields of unstructured objects.
//
// Reading never converts more than the field asked for, and a field of an unexpected type is an error that names
// the field instead of a panic. Changing never touches the object it is given: With and Without return a new root
// and copy only the maps on the way to the changed field. Everything else is shared with the original, so both
// must be treated as read-only afterwards.
package fields
