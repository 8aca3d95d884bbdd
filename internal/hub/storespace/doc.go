// Package storespace watches how much of their quota the etcds of cells use. It tells when space runs low. It defragments members that are mostly
// unused, one at a time and never the leader of several, and frees an etcd that refuses writes because its quota is used.
package storespace
