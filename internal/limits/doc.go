// Package limits bounds what the requests of one user can take of a server: bytes held in memory, and long-running requests.
//
// Both bounds are kept by owner. That is the user, but the service accounts of a namespace are one owner: whoever may create one of them may
// create many. Administrators and the components of the federation are never refused or delayed, but counted.
package limits
