package console

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Every page is checked by axe, in light and dark colours and in both sizes. axe is test data, and no part of the console.
func (f *federation) testAccessible(t *testing.T, browser context.Context) {
	axe, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	f.run(t, "kubectl", "apply", "-f", "testdata/shop.yaml")
	f.run(t, "kubectl", "apply", "-f", "testdata/event.yaml")
	p := open(t, browser, "about:blank")
	// axe makes elements from strings to measure contrast, which the policy of the page forbids.
	if _, err := chromedp.Call(p.ctx, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	check := func(name string) {
		for _, v := range []viewport{desktop, phone} {
			for _, theme := range []string{"light", "dark"} {
				p.resize(v, theme)
				found := evaluate[[]string](p, `axe.run({resultTypes: ["violations"]}).then((r) => r.violations.filter((v) => v.impact === "serious" || v.impact === "critical")
					.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " (" + n.any.map((a) => a.message).join("; ") + ")").join(" | ")))`)
				for _, problem := range found {
					t.Errorf("%s, %s, %s: %s", name, v.name, theme, problem)
				}
			}
		}
		p.resize(desktop, "light")
	}
	p.do(chromedp.Navigate(f.address()))
	p.shows("Sign in to Cellplane")
	evaluate[bool](p, string(axe)+"; true")
	check("sign-in")
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(f.link(t))) // an address that differs in its fragment only is not loaded anew
	p.shows("cell-a", "member1", "Examined")
	evaluate[bool](p, string(axe)+"; true")
	check("overview")
	for _, visit := range []struct{ hash, shows string }{
		{"#/cells", "Point at a slot"},
		{"#/clusters", "Processors"},
		{"#/clusters/member1", "The largest pod that fits"},
		{"#/clusters/nobody", "There is no cluster nobody"},
		{"#/workloads?namespace=shop", "web"},
		{"#/workloads/deployments.v1.apps/shop/web", "Where it runs, and why"},
		{"#/workloads/deployments.v1.apps/shop/web?tab=overrides", "OverridePolicy north"},
		{"#/workloads/deployments.v1.apps/shop/web?tab=limits", "Quota"},
		{"#/workloads/deployments.v1.apps/shop/web?tab=yaml", "apiVersion: apps/v1"},
		{"#/pods?namespace=shop", "web-"},
		{"#/simulate", "Manifest"},
	} {
		evaluate[string](p, fmt.Sprintf("location.hash = %q", visit.hash))
		p.shows(visit.shows)
		check(visit.hash)
	}
	p.click("button", "Keys")
	p.shows("as the machine prefers")
	check("the list of keys")
}
