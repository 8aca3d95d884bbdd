// Package durability has writes to objects with the annotation names.DurabilityAnnotation, on themselves or on their
// namespace, acknowledged only when a backup cell has them.
//
// Cells refuse such writes unless the gateway says that it knows (package fence), so that other writes cost nothing. The
// backup of the hub manager reports what each backup cell has received from each cell in a Lease in the backup cell,
// in the transaction of the copies (package internal/durability). A gateway watches these Leases in all cells.
// Nothing is sent to the hub manager. If it does not run, or a backup cell does not answer, the Leases are not renewed.
package durability
