// Command cellplane contains all parts of Cellplane.
package main

import (
	"os"

	"github.com/cellplane/cellplane/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
