// Command docgen writes the references of the command line and of metrics. Run it with `make generate`.
package main

import (
	"fmt"
	"os"

	"github.com/cellplane/cellplane/internal/cli"
	"github.com/cellplane/cellplane/internal/metriclist"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: docgen DIRECTORY METRICS-PAGE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func write(commands, metrics string) error {
	if err := cli.WriteReference(commands); err != nil {
		return err
	}
	page, err := metriclist.Page()
	if err != nil {
		return err
	}
	return os.WriteFile(metrics, page, 0o644)
}
