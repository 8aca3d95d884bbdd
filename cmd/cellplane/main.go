// Command cellplane is every part of Cellplane in one program.
package main

import (
	"os"

	"github.com/cellplane/cellplane/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
