// Package fanout makes several clusters look like one API server for reads. Its Transport sends a get, list or watch to every
// cluster and merges the answers: Tables get the columns CLUSTER and ADOPTION, objects an annotation. kubectl's own commands
// work on top of it unchanged.
//
// It is for a person's command line. Programs use the cluster-gateway, which caches.
package fanout
