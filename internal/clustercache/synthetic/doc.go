// Package synthetic makes up pods that look like those of a large production: of 3 to 4 KB in protobuf, with several containers,
// environments, volumes, probes, conditions and owners, and with all that makes pods hard to compress: UIDs, container IDs, digests,
// addresses, timestamps and many distinct labels. Measurements of the cache are only worth something on such pods.
package synthetic
