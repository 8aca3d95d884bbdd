package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Prefix is the path under which the console is served.
const Prefix = "/console"

// configPath is the path, after Prefix, of what the page has to know before anybody has signed in.
const configPath = "config.json"

// Issuer is an OpenID Connect issuer that users may sign in with.
type Issuer struct {
	// URL identifies the issuer.
	URL string `json:"issuer"`
	// ClientID is the audience of its tokens, and the client that the console asks for them as.
	ClientID string `json:"clientID"`
}

// Handler serves the console, and passes all other requests on. It comes before authentication: whoever reaches the gateway may load these
// files, and nothing else through it.
type Handler struct {
	// Next gets the requests for other paths.
	Next http.Handler
	// Issuers returns the issuers that the gateway trusts; nil if there can be none.
	Issuers func() []Issuer
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ours := strings.CutPrefix(r.URL.Path, Prefix)
	if !ours || name != "" && name[0] != '/' {
		h.Next.ServeHTTP(w, r)
		return
	}
	protect(w.Header(), h.issuers())
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the console has only files to read", http.StatusMethodNotAllowed)
	case name == "":
		// A relative address: the gateway may be behind a proxy that adds a prefix. The fragment stays.
		w.Header().Set("Location", "console/")
		w.WriteHeader(http.StatusPermanentRedirect)
	case name[1:] == configPath:
		h.serveConfig(w)
	default:
		serveFile(w, r, name[1:])
	}
}

func (h *Handler) issuers() []Issuer {
	if h.Issuers == nil {
		return nil
	}
	return h.Issuers()
}

// protect sets the headers that keep a page from doing, or being used for, anything that it is not meant for.
func protect(header http.Header, issuers []Issuer) {
	connect := []string{"'self'"}
	for _, issuer := range issuers {
		if origin := originOf(issuer.URL); origin != "" && !slices.Contains(connect, origin) {
			connect = append(connect, origin)
		}
	}
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "+strings.Join(connect, " ")+
		"; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// originOf returns the origin of an https URL in the form that a policy lists it in; empty if it has none.
func originOf(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || strings.ContainsAny(parsed.Host, " ;,'\"") {
		return ""
	}
	return "https://" + parsed.Host
}

func (h *Handler) serveConfig(w http.ResponseWriter) {
	body, err := json.Marshal(struct {
		Issuers []Issuer `json:"issuers"`
	}{append([]Issuer{}, h.issuers()...)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // a client that has left needs none
}

func serveFile(w http.ResponseWriter, r *http.Request, name string) {
	all, err := files()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	found := all[name]
	if found == nil {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "the console has no such file; it begins at "+Prefix+"/", http.StatusNotFound)
		return
	}
	header := w.Header()
	header.Set("Content-Type", found.contentType)
	header.Set("Vary", "Accept-Encoding")
	header.Set("Etag", found.etag)
	header.Set("Cache-Control", "no-cache")
	if found.immutable {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == found.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := found.plain
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		body = found.packed
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // a client that has left needs none
}

func acceptsGzip(accepted string) bool {
	for offer := range strings.SplitSeq(accepted, ",") {
		coding, quality, _ := strings.Cut(offer, ";")
		if strings.TrimSpace(coding) == "gzip" {
			return strings.ReplaceAll(quality, " ", "") != "q=0"
		}
	}
	return false
}
