package console

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// screenshots is where `make screenshots` wants the pictures of the README.
var screenshots = flag.String("console.screenshots", "", "folder to write the pictures of the README to")

// testScreenshots shows what the pictures of the README show, and writes them if they are asked for.
func (f *federation) testScreenshots(t *testing.T, browser context.Context) {
	f.run(t, "kubectl", "apply", "-f", "../../docs/examples/web.yaml")
	p := open(t, browser, f.link(t))
	p.shows("Serving", "cell-a", "member1", "free of")
	p.take("console-overview.png", "light")
	p.click(".nav a", "Cells")
	p.shows("Point at a slot")
	p.take("console-cells.png", "dark")
}

func (p *tab) take(name, theme string) {
	p.t.Helper()
	picture := p.screenshot(desktop, theme)
	if *screenshots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name), picture, 0o644); err != nil { //nolint:gosec // everybody may read it
		p.t.Fatal(err)
	}
}
