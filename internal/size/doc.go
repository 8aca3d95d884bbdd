// Package size computes how many cells, replicas, processors, and how much memory and storage a federation needs, from
// measured costs. The costs are in costs.yaml, each with the command that measured it and its place in
// docs/performance.md.
package size
