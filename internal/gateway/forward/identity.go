package forward

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	extraPrefix = "X-Remote-Extra-"
	// epochHeader carries the user extra names.EpochExtra, encoded as names of extras have to be: the epoch of the map that a
	// request was routed by.
	epochHeader = extraPrefix + "Cellplane.io%2fepoch"
	// existingHeader carries the user extra names.ExistingExtra: the request must not create anything.
	existingHeader = extraPrefix + "Cellplane.io%2fexisting"
	// ownExtras begins the headers of extras that only gateways set, in lower case.
	ownExtras = "x-remote-extra-cellplane.io"
)

// Scope says for which kind of control plane an identity is written.
type Scope struct {
	// Cell is set for a cell: requests to it are authorized already, which a group tells it. The hub authorizes for itself.
	Cell bool
	// Epoch is that of the map which led to the cell.
	Epoch int64
	// Existing keeps the request from creating anything: new objects of its slot are made in another cell.
	Existing bool
}

// Hub is the scope of requests to the hub.
var Hub = Scope{}

// ToCell is the scope of requests to a cell that a map of the given epoch led to.
func ToCell(epoch int64) Scope { return Scope{Cell: true, Epoch: epoch} }

// SetIdentity makes a request one of the given user, for a control plane that trusts us to say so. Whatever the client has sent to be
// taken for somebody is removed.
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
	if scope.Cell {
		groups = append(groups[:len(groups):len(groups)], fleet.AuthorizedGroup)
		header[epochHeader] = []string{strconv.FormatInt(scope.Epoch, 10)}
		if scope.Existing {
			header[existingHeader] = []string{"true"}
		}
	}
	if len(groups) > 0 {
		header["X-Remote-Group"] = groups
	}
}

// setExtra adds the user's extras, but for those that only gateways set.
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

// usualExtras are the headers of extras that authenticators give to nearly everybody: encoding their names takes longer than all else
// that is to be done for an identity.
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

// ExtraHeaders returns the headers with a prefix for a user's extras, with their names encoded as client-go does it.
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

// StripIdentity removes all headers by which a request could name a user. Underscores count as dashes, as some proxies take them.
func StripIdentity(header http.Header) {
	for key := range header {
		if begins(key, "x-remote-") || begins(key, "impersonate-") || len(key) == len(authorization) && begins(key, authorization) {
			delete(header, key)
		}
	}
}

const authorization = "authorization"

// begins reports whether the name of a header begins with a text in lower case.
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

// AsGateway makes a request one of the gateway itself.
func AsGateway(r *http.Request, scope Scope) { SetIdentity(r.Header, gatewayUser, scope) }
