package console

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cellplane/cellplane/api/names"
)

func TestConsole(t *testing.T) {
	browser := launch(t) // before the federation: without a browser, this is said at once
	f := start(t)
	if f.issuer != nil {
		t.Run("SignInByIssuer", func(t *testing.T) { f.testIssuer(t, browser) })
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, context.Context)
	}{
		{"SignInByLink", f.testLink},
		{"SignInByLinkOfOthers", f.testLinkOfOthers},
		{"SignInByToken", f.testToken},
		{"Pages", f.testPages},
		{"Keys", f.testKeys},
		{"Pods", f.testPods},
		{"Rollout", f.testRollout},
		{"Simulate", f.testSimulate},
		{"FewRights", f.testFewRights},
		{"Expiry", f.testExpiry},
		{"HostileTexts", f.testHostileTexts},
		{"GatewayAway", f.testGatewayAway},
		{"Accessible", f.testAccessible},
		{"Screenshots", f.testScreenshots},
		{"CellJoins", f.testCellJoins}, // last: the federation has another cell afterwards
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, browser) })
	}
}

// The link of `cellplane console` signs in, and its token leaves the address and the history at once.
func (f *federation) testLink(t *testing.T, browser context.Context) {
	p := open(t, browser, f.link(t))
	p.shows("The federation", "cell-a", "cell-b", "member1", "member2")
	if address := evaluate[string](p, "location.href"); strings.Contains(address, "token") {
		t.Errorf("the address still has the token: %s", address)
	}
	if entries := evaluate[int](p, "history.length"); entries > 2 { // the empty page, and this one
		t.Errorf("the history has %d entries", entries)
	}
	if kept := evaluate[string](p, "JSON.stringify({...localStorage, ...sessionStorage}) + document.cookie"); strings.Contains(kept, "eyJ") {
		t.Error("the token is stored")
	}
}

// A link to a gateway on another machine signs nobody in who does not agree: the token may be of whoever made the link.
func (f *federation) testLinkOfOthers(t *testing.T, browser context.Context) {
	gateway, err := url.Parse(f.address())
	if err != nil {
		t.Fatal(err)
	}
	gateway.Host = net.JoinHostPort(elsewhere, gateway.Port())
	link := gateway.String() + "#token=" + f.account(t, "stranger")
	p := open(t, browser, link)
	p.shows("Sign in as system:serviceaccount:default:stranger?")
	if address := evaluate[string](p, "location.href"); strings.Contains(address, "token") {
		t.Errorf("the address still has the token: %s", address)
	}
	p.pictures("link")
	p.click("button", "Do not use it")
	p.shows("Sign in to Cellplane")
	p.never("stranger")
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link))
	p.shows("Sign in as system:serviceaccount:default:stranger?")
	p.click("button", "Sign in")
	p.shows("The federation", "system:serviceaccount:default:stranger")
	// What is no token is refused as one.
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(f.address()+"#token=%"))
	p.shows("The gateway does not accept this token.")
}

// A token that is pasted signs in; one that the gateway does not know is refused in one sentence.
func (f *federation) testToken(t *testing.T, browser context.Context) {
	p := open(t, browser, f.address())
	p.shows("Sign in to Cellplane")
	p.pictures("signin")
	p.fill("#token", "nonsense")
	p.click("button", "Sign in")
	p.shows("The gateway does not accept this token.")
	_, token, _ := strings.Cut(f.link(t), "#token=")
	p.fill("#token", token)
	p.click("button", "Sign in")
	p.shows("The federation", "system:serviceaccount:"+names.SystemNamespace+":cellplane-console")
	// A reload forgets it.
	p.do(chromedp.Reload())
	p.shows("Sign in to Cellplane")
}

// Every page shows what it promises.
func (f *federation) testPages(t *testing.T, browser context.Context) {
	p := open(t, browser, f.link(t))
	p.shows("Serving", "what is not cut", "free of", "Live")
	p.pictures("overview")
	p.click(".nav a", "Clusters")
	p.shows("Processors", "member1")
	p.pictures("clusters")
	p.click("a.name", "member1")
	p.shows("The largest pod that fits", "Ready", "push: the federation writes", "cellplane cordon member1")
	p.pictures("cluster")
}

// The keyboard reaches every page.
func (f *federation) testKeys(t *testing.T, browser context.Context) {
	p := open(t, browser, f.link(t))
	p.shows("The federation")
	p.do(chromedp.KeyEvent("gc"))
	p.shows("Processors")
	// The browser's protocol would also send the character, which a keyboard does not once the page has taken the key.
	evaluate[bool](p, `document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true, cancelable: true}))`)
	p.do(chromedp.KeyEvent("member2"))
	p.until("only member2 is listed", "document.querySelectorAll('tbody tr').length === 1")
	p.do(chromedp.KeyEvent("\r"))
}
