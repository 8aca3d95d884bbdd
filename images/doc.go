// Command images builds OCI images of Cellplane, etcd and Kubernetes for several platforms, with the Go tool alone. It
// writes them as OCI layouts with an SBOM each, and pushes them to a registry. The same source gives the same digests.
//
// It is a module of its own, so that Cellplane does not depend on what it needs: see docs/adr/0013-images-with-go-alone.md.
package main
