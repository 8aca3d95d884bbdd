package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience bounds what a browser is waited for. It is long, for loaded machines.
const patience = 2 * time.Minute

// program finds the browser.
func program(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CELLPLANE_BROWSER"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no browser: install Chromium (as root on Debian: apt-get install -y chromium), or name one in $CELLPLANE_BROWSER")
	return ""
}

// elsewhere is a name under which the browser reaches this machine that does not look like it.
const elsewhere = "gateway.example.com"

// launch starts a browser until the test ends.
func launch(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program(t)),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("ignore-certificate-errors", true), // of the local federation's own authority
		chromedp.Flag("host-resolver-rules", "MAP "+elsewhere+" 127.0.0.1"),
		chromedp.Flag("no-sandbox", os.Geteuid() == 0),
		chromedp.WSURLReadTimeout(patience),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		cancel()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting the browser: %v", err)
	}
	return ctx
}

// tab is a page of a browser, with storage of its own.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// viewport is the size of a page.
type viewport struct {
	name          string
	width, height int64
	phone         bool
}

var (
	desktop = viewport{name: "desktop", width: 1280, height: 800}
	phone   = viewport{name: "phone", width: 390, height: 844, phone: true}
)

// open opens a page until the test ends. A page in which a script fails, or that violates its policy, fails the test.
func open(t *testing.T, browser context.Context, address string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	p := &tab{t: t, ctx: ctx}
	messages, read := chromedp.Console(ctx), make(chan struct{})
	go func() {
		defer close(read)
		for message, err := range messages {
			if err != nil {
				return // the page is closed
			}
			complain(t, message)
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			p.keep()
		}
		cancel()
		<-read
	})
	// Keys reach a page that has the focus only.
	if _, err := chromedp.Call(p.ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	p.resize(desktop, "light")
	p.do(chromedp.Navigate(address))
	return p
}

// complain fails the test if the page has said what no page should say.
func complain(t *testing.T, message chromedp.ConsoleMessage) {
	switch {
	case message.Source == "network": // a request that is refused or gets no answer is part of some tests
	case message.Type == chromedp.ConsoleError || message.Type == chromedp.ConsoleException:
		t.Errorf("the page says: %s", message.Text)
	}
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// evaluate returns the value of an expression, which may be a promise.
func evaluate[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatal(err)
	}
	return value
}

// resize sets the size of the page, and which colours the machine prefers.
func (p *tab) resize(v viewport, theme string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: v.height, DeviceScaleFactor: 1, Mobile: v.phone}); err != nil {
		p.t.Fatal(err)
	}
	prefers := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, prefers); err != nil {
		p.t.Fatal(err)
	}
}

// until waits until an expression is true, also in a page to which this one leads meanwhile.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		poll := chromedp.Poll[bool](expression, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(time.Until(deadline)))
		_, err := chromedp.Run(p.ctx, poll)
		if err == nil {
			return
		}
		if !navigated(err) || time.Now().After(deadline) {
			p.t.Fatalf("%s: %v; the page shows:\n%s", what, err, p.text())
		}
	}
}

// navigated reports whether the page that was asked has been replaced by another.
func navigated(err error) bool {
	return slices.ContainsFunc([]string{"Inspected target navigated or closed", "Cannot find context with specified id", "Execution context was destroyed"}, func(words string) bool {
		return strings.Contains(err.Error(), words)
	})
}

// shows waits until the page shows a text.
func (p *tab) shows(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until(fmt.Sprintf("the page shows %q", text), fmt.Sprintf("document.body.innerText.includes(%s)", quote(text)))
	}
}

// text returns what the page shows.
func (p *tab) text() string {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return "nothing that could be read: " + err.Error()
	}
	return text
}

// click clicks the first element of a kind whose name or text contains the words.
func (p *tab) click(selector, words string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%s)].find((e) => ((e.getAttribute("aria-label") ?? "") + e.innerText).includes(%s) && !e.disabled)`, quote(selector), quote(words))
	p.until(fmt.Sprintf("there is %s with %q", selector, words), "!!"+find)
	evaluate[bool](p, "("+find+".click(), true)")
}

// fill puts a text into a field at once, as pasting it does.
func (p *tab) fill(selector, text string) {
	p.t.Helper()
	p.until("there is "+selector, fmt.Sprintf("!!document.querySelector(%s)", quote(selector)))
	p.set(selector, text, "input")
}

// set sets the value of a field, and says so by an event.
func (p *tab) set(selector, value, event string) {
	p.t.Helper()
	evaluate[bool](p, fmt.Sprintf(`(() => { const e = document.querySelector(%s); e.value = %s; return e.dispatchEvent(new Event(%s, {bubbles: true})); })()`, quote(selector), quote(value), quote(event)))
}

// choose chooses a value of a list.
func (p *tab) choose(selector, value string) {
	p.t.Helper()
	p.until("there is "+selector, fmt.Sprintf("!!document.querySelector(%s)", quote(selector)))
	p.set(selector, value, "change")
}

// never fails the test if the page shows a text.
func (p *tab) never(text string) {
	p.t.Helper()
	if strings.Contains(p.text(), text) {
		p.t.Errorf("the page shows %q", text)
	}
}

func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// screenshot returns what the page shows as a picture.
func (p *tab) screenshot(v viewport, theme string) []byte {
	p.t.Helper()
	p.resize(v, theme)
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	return picture
}

// keep writes what the page shows into the folder of $CELLPLANE_SCREENSHOTS.
func (p *tab) keep() {
	p.t.Logf("the page shows:\n%s", p.text())
	p.pictures(strings.ReplaceAll(p.t.Name(), "/", "-"))
}

// pictures writes a page in all sizes and colours into the folder of $CELLPLANE_SCREENSHOTS, if that is set.
func (p *tab) pictures(name string) {
	dir := os.Getenv("CELLPLANE_SCREENSHOTS")
	if dir == "" {
		return
	}
	for _, v := range []viewport{desktop, phone} {
		for _, theme := range []string{"light", "dark"} {
			path := filepath.Join(dir, fmt.Sprintf("%s-%s-%s.png", name, v.name, theme))
			if err := os.WriteFile(path, p.screenshot(v, theme), 0o600); err != nil {
				p.t.Log(err)
			}
		}
	}
	p.resize(desktop, "light")
}
