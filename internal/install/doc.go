// Package install installs a federation on a cluster: it renders the chart that is embedded, with Helm's engine, applies it and waits until
// everything is ready. Helm installs the same chart.
package install
