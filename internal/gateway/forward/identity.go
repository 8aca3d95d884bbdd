package forward

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/transport"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	extraPrefix = "X-Remote-Extra-"
	// epochHeader carries the user extra names.EpochExtra, encoded as names of extras must be: the epoch of the topology that the
	// request was routed by.
	epochHeader = extraPrefix + "Cellplane.io%2fepoch"
	// existingHeader carries the user extra names.ExistingExtra: the request must not create an object.
	existingHeader = extraPrefix + "Cellplane.io%2fexisting"
	// durabilityHeader carries the user extra names.DurabilityExtra: the gateway knows that the write has to be durable.
	durabilityHeader = extraPrefix + "Cellplane.io%2fdurability"
	// userHeader carries the user extra names.UserExtra: the request is that of a user, and not of a component.
	userHeader = extraPrefix + "Cellplane.io%2fuser"
	// ownExtras is the prefix, in lower case, of the headers of extras that only gateways may set.
	ownExtras = "x-remote-extra-cellplane.io"
)

// Scope is the kind of control plane that an identity is sent to.
type Scope struct {
	// Cell is set for a cell: a group marks the request as authorized. The hub authorizes requests itself.
	Cell bool
	// Epoch is the epoch of the topology by which the cell was chosen.
	Epoch int64
	// Existing keeps the request from creating an object: new objects of its slot are created in another cell.
	Existing bool
	// Durable says that the gateway takes care of the object's durability.
	Durable bool
}

// Hub is the scope of requests to the hub.
var Hub = Scope{}

// ToCell is the scope of requests to a cell that was chosen by the topology of an epoch.
func ToCell(epoch int64) Scope { return Scope{Cell: true, Epoch: epoch} }

// SetIdentity sets the user of a request to a control plane that trusts the gateway's front-proxy certificate. It removes all identity
// headers that the client has sent.
func SetIdentity(header http.Header, u user.Info, scope Scope) {
	StripIdentity(header)
	header["X-Remote-User"] = []string{u.GetName()}
	if uid := u.GetUID(); uid != "" {
		header["X-Remote-Uid"] = []string{uid}
	}
	groups := u.GetGroups()
	if slices.Contains(groups, fleet.AuthorizedGroup) {
		groups = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == fleet.AuthorizedGroup })
	}
	if extra := u.GetExtra(); len(extra) > 0 {
		setExtra(header, extra)
	}
	if !names.IsComponent(u.GetName()) {
		header[userHeader] = isUser
	}
	if scope.Cell {
		groups = append(groups[:len(groups):len(groups)], fleet.AuthorizedGroup)
		header[epochHeader] = []string{strconv.FormatInt(scope.Epoch, 10)}
		if scope.Existing {
			header[existingHeader] = []string{"true"}
		}
		if scope.Durable {
			header[durabilityHeader] = []string{"true"}
		}
	}
	if len(groups) > 0 {
		header["X-Remote-Group"] = groups
	}
}

var isUser = []string{"true"}

// setExtra adds the user's extras, except those that only gateways may set.
func setExtra(header http.Header, extra map[string][]string) {
	for key, values := range extra {
		if name, usual := usualExtras[key]; usual {
			header[name] = append(slices.Clip(header[name]), values...)
			continue
		}
		for name, values := range ExtraHeaders(map[string][]string{key: values}, extraPrefix) {
			header[name] = append(slices.Clip(header[name]), values...)
		}
	}
}

// usualExtras are the headers of common extras. Encoding their names would take longer than the rest of SetIdentity.
var usualExtras = headersOf(user.CredentialIDKey, serviceaccount.PodNameKey, serviceaccount.PodUIDKey, serviceaccount.NodeNameKey, serviceaccount.NodeUIDKey)

func headersOf(extras ...string) map[string]string {
	found := map[string]string{}
	for _, extra := range extras {
		for name := range ExtraHeaders(map[string][]string{extra: {""}}, extraPrefix) {
			found[extra] = name
		}
	}
	return found
}

// ExtraHeaders returns the headers for a user's extras, with a prefix and with names encoded as client-go does.
func ExtraHeaders(extra map[string][]string, prefix string) http.Header {
	headers := http.Header{}
	if len(extra) == 0 {
		return headers
	}
	scratch := http.Request{Header: http.Header{}}
	transport.SetAuthProxyHeaders(&scratch, "", "", nil, extra)
	for key, values := range scratch.Header {
		if name, ok := strings.CutPrefix(key, extraPrefix); ok && !strings.HasPrefix(strings.ToLower(key), ownExtras) {
			headers[http.CanonicalHeaderKey(prefix+name)] = values
		}
	}
	return headers
}

// StripIdentity removes all identity headers, and tokens among the subprotocols of a WebSocket. Underscores count as dashes, because some
// proxies treat them so.
func StripIdentity(header http.Header) {
	for key, values := range header {
		switch {
		case begins(key, "x-remote-") || begins(key, "impersonate-") || is(key, authorization):
			delete(header, key)
		case is(key, subprotocols):
			if values = withoutTokens(values); len(values) > 0 {
				header[key] = values
			} else {
				delete(header, key)
			}
		}
	}
}

const (
	authorization = "authorization"
	subprotocols  = "sec-websocket-protocol"
	// tokenSubprotocol begins the subprotocol with which a browser sends a token. Authentication removes it if it reads it, which it
	// does not if the client has a certificate.
	tokenSubprotocol = "base64url.bearer.authorization.k8s.io."
)

// withoutTokens returns the subprotocols in the values of a header, without tokens.
func withoutTokens(values []string) []string {
	var kept []string
	for _, list := range values {
		var others []string
		for protocol := range strings.SplitSeq(list, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !begins(protocol, tokenSubprotocol) {
				others = append(others, protocol)
			}
		}
		if len(others) > 0 {
			kept = append(kept, strings.Join(others, ", "))
		}
	}
	return kept
}

// is reports whether a header has a name, which is given in lower case.
func is(name, want string) bool { return len(name) == len(want) && begins(name, want) }

// begins reports whether the name of a header has a prefix, which is given in lower case.
func begins(name, with string) bool {
	if len(name) < len(with) {
		return false
	}
	for i := range len(with) {
		c := name[i]
		switch {
		case c == '_':
			c = '-'
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		if c != with[i] {
			return false
		}
	}
	return true
}

var gatewayUser = &user.DefaultInfo{Name: names.GatewayUser, Groups: []string{user.AllAuthenticated}}

// WithGateway returns a context whose requests are those of the gateway itself.
func WithGateway(ctx context.Context) context.Context { return request.WithUser(ctx, gatewayUser) }

// IsGateway reports whether the requests of a context are those of the gateway itself.
func IsGateway(ctx context.Context) bool {
	u, found := request.UserFrom(ctx)
	return found && u == user.Info(gatewayUser)
}

// AsGateway sets the user of a request to the gateway itself.
func AsGateway(r *http.Request, scope Scope) { SetIdentity(r.Header, gatewayUser, scope) }

// OwnRequest returns a request of the gateway itself, for JSON. The path is not escaped; the body may be nil.
func OwnRequest(ctx context.Context, scope Scope, method, path string, query url.Values, body []byte) *http.Request {
	r := (&http.Request{
		Method: method, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Header: http.Header{"Accept": {"application/json"}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	AsGateway(r, scope)
	return r
}
