// Package synthetic generates pods like those of a large production cluster, for tests and benchmarks of the cache: 3 to 4 KB in
// protobuf, with several containers, environments, volumes, probes, conditions and owners, and with all that makes pods hard to compress:
// UIDs, container IDs, digests, addresses, timestamps and many distinct labels.
package synthetic
