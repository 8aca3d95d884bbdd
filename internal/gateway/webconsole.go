package gateway

import (
	"net/http"
	"sync"
	"time"

	"github.com/cellplane/cellplane/internal/console"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/tokens"
)

// withConsole serves the files of the web console before anything else is done with a request. Whether there is a console or not, the pages
// of other sites get nothing from the gateway.
func (c *Config) withConsole(next http.Handler) http.Handler {
	next = console.RefuseOtherSites(next, forward.WriteError)
	if !c.options.Console {
		return next
	}
	return &console.Handler{Next: next, Issuers: consoleIssuers(c.options.Tokens)}
}

// issuersAge is how old what the console is told of issuers may be. Who asks for it has not signed in, and must not cause work.
const issuersAge = 5 * time.Second

// consoleIssuers returns a function that returns the issuers of tokens.
func consoleIssuers(options tokens.Options) func() []console.Issuer {
	var mu sync.Mutex
	var known []console.Issuer
	var read time.Time
	return func() []console.Issuer {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(read) < issuersAge {
			return known
		}
		known = nil
		for _, issuer := range tokens.Issuers(options) {
			known = append(known, console.Issuer{URL: issuer.URL, ClientID: issuer.ClientID})
		}
		read = time.Now()
		return known
	}
}
