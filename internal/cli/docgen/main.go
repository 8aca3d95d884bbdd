// Command docgen writes the reference of the command line. Run it with `make generate`.
package main

import (
	"fmt"
	"os"

	"github.com/cellplane/cellplane/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docgen DIRECTORY")
		os.Exit(2)
	}
	if err := cli.WriteReference(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}
