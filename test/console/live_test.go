package console

import (
	"context"
	"testing"
)

// A cell that joins while the map of slots is open is seen to take its share.
func (f *federation) testCellJoins(t *testing.T, browser context.Context) {
	p := open(t, browser, f.link(t))
	p.click(".nav a", "Cells")
	p.shows("epoch", "cell-a", "cell-b", "Point at a slot")
	// The plan says the same as the command line, before anything changes.
	p.click(".choices button", "Add a cell")
	p.fill("#plan-cell", "cell-c")
	p.shows("of all objects would move", "cellplane cells add cell-c")
	p.pictures("plan")
	planned := evaluate[string](p, `[...document.querySelectorAll('table[aria-label="Shares"] tbody tr')].map((r) => r.children[0].innerText.trim() + "=" + r.children[2].innerText.trim()).join(" ")`)
	// What has been seen is kept by the page, as a change of a few objects is quick.
	evaluate[bool](p, `(() => { window.seen = new Set(); new MutationObserver(() => { if (document.body.innerText.includes("cell-c joins")) window.seen.add("joins"); }).observe(document.body, {subtree: true, childList: true, characterData: true}); return true; })()`)
	f.run(t, "cells", "add", "cell-c")
	p.until("cell-c owns slots", `[...document.querySelectorAll('.slots-legend button')].some((b) => b.innerText.includes("cell-c") && !b.innerText.includes(" 0.0%"))`)
	p.until("the change has ended", `!document.querySelector(".change")`)
	if !evaluate[bool](p, `window.seen.has("joins")`) {
		t.Error("the change was not shown while it was under way")
	}
	shares := evaluate[string](p, `[...document.querySelectorAll(".slots-legend button")].map((b) => b.innerText.trim().replace(/\s+/, "=")).join(" ")`)
	if shares != planned {
		t.Errorf("the shares are %s, and %s was planned", shares, planned)
	}
	p.pictures("cells")
}
