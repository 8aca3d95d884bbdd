// Command bundle makes the files of the console from its sources. It runs in the folder of the package console.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := bundle(); err != nil {
		fmt.Fprintf(os.Stderr, "bundling the console: %v\n", err)
		os.Exit(1)
	}
}

// copied are the files that need no bundler.
var copied = []string{"index.html", "icon.svg", "licenses.txt"}

func bundle() error {
	esbuild := exec.Command("go", "tool", "-modfile=../../tools/go.mod", "esbuild",
		"web/src/main.tsx", "web/style.css",
		"--bundle", "--minify", "--target=es2022", "--format=esm", "--charset=utf8", "--legal-comments=none", "--log-level=warning",
		"--jsx=automatic", "--jsx-import-source=preact",
		"--alias:preact=./web/vendor/preact/dist/preact.mjs",
		"--alias:preact/hooks=./web/vendor/preact/hooks/dist/hooks.mjs",
		"--alias:preact/jsx-runtime=./web/vendor/preact/jsx-runtime/dist/jsxRuntime.mjs",
		"--outdir=static", "--entry-names=[name]")
	esbuild.Stderr = os.Stderr
	if err := esbuild.Run(); err != nil {
		return fmt.Errorf("esbuild: %w", err)
	}
	for from, to := range map[string]string{"main.js": "console.js", "style.css": "console.css"} {
		if err := os.Rename(filepath.Join("static", from), filepath.Join("static", to)); err != nil {
			return err
		}
	}
	for _, name := range copied {
		data, err := os.ReadFile(filepath.Join("web", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join("static", name), []byte(strings.TrimSpace(string(data))+"\n"), 0o644); err != nil { //nolint:gosec // everybody may read it
			return err
		}
	}
	return nil
}
