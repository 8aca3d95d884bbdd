package console

import (
	"context"
	"testing"

	"github.com/cellplane/cellplane/internal/local"
)

// A page that is open while the gateway is away says since when it is stale, and goes on by itself.
func (f *federation) testGatewayAway(t *testing.T, browser context.Context) {
	p := open(t, browser, f.link(t))
	p.shows("member1", "Serving")
	supervisor, err := local.NewClient(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Signal(t.Context(), local.Gateway, "halt"); err != nil {
		t.Fatal(err)
	}
	resurrect := func() {
		if err := supervisor.Signal(context.Background(), local.Gateway, "resurrect"); err != nil {
			t.Error(err)
		}
	}
	p.shows("The gateway has not answered for", "stale since", "member1")
	p.pictures("stale")
	resurrect()
	p.until("nothing is stale", `!document.querySelector(".stale, .banner") && document.body.innerText.includes("Serving")`)
	f.region(t, "member1", "north")
	p.shows("north") // by the watches, which have resumed
}
