// Package cellstore reads and writes the etcd of a cell directly, beneath its API server.
//
// It is for the few who have to: the mover, the backup controller and the promotion of backups carry stored objects from one etcd to
// another, so that nothing about them changes. A Store is a connection; Parse, WithMark and WithoutMark understand and edit what an
// API server has stored, byte for byte as the API server would have written it; Classify says which objects are cut into cells.
//
// Every write goes through Store.Txn, which compares the term under which the writer works. The term is raised by whoever takes over,
// so that a writer that was paused and does not know of its successor is refused by the store itself.
package cellstore
