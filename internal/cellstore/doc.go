// Package cellstore reads and writes the etcd of a cell directly, beneath its API server.
//
// Only the mover, the backup controller and the promotion of backups need it: they copy stored objects from one etcd to another without
// changing them. A Store is a connection. Parse and WithMark read and edit stored objects byte for byte as the API server would write
// them. Classify decides which objects belong to a slot.
//
// Every write goes through Store.Txn, which is fenced by a term. A new leader raises the term, so that the store itself refuses the
// writes of an old leader that was paused and does not know of its successor.
package cellstore
