// Package charts embeds the Helm charts, so that `cellplane install` renders the same templates as Helm.
package charts

import (
	"embed"
	"io/fs"
)

//go:embed all:cellplane
var files embed.FS

// Cellplane returns the chart of a federation.
func Cellplane() fs.FS {
	chart, err := fs.Sub(files, "cellplane")
	if err != nil {
		panic(err) // the name is constant
	}
	return chart
}
