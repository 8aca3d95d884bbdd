package forward_test

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// read returns the user that an API server sees.
func read(t interface{ Fatal(...any) }, header http.Header) user.Info {
	reader, err := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
	if err != nil {
		t.Fatal(err)
	}
	response, ok, err := reader.AuthenticateRequest(&http.Request{Header: header})
	if err != nil || !ok {
		t.Fatal("the request has no user:", err)
	}
	return response.User
}

// TestIdentity checks, for any user and any headers a client may send, that a cell sees that user with the epoch and the group, and that
// the hub sees that user and nothing else. Both see whether it is a user or a component, whatever the user claims.
func TestIdentity(t *testing.T) {
	word := rapid.StringMatching(`[a-zA-Z0-9:._/%@ -]{1,20}`)
	hostile := rapid.SampledFrom([]string{
		"X-Remote-User", "x-remote-user", "X-Remote-Group", "X-Remote-Uid", "X-Remote-Extra-Scopes", "X-Remote-Extra-Cellplane.io%2fepoch",
		"X_Remote_Group", "Impersonate-User", "Impersonate-Group", "Authorization", "X-Remote-Extra-cellplane.io%2Fepoch", "X-Remote-Extra-Cellplane.io%2fuser",
	})
	components := []string{names.EngineUser("cell-a"), names.AgentUser("member-a")}
	rapid.Check(t, func(t *rapid.T) {
		header := http.Header{"Accept": {"application/json"}}
		for _, key := range rapid.SliceOf(hostile).Draw(t, "sent") {
			if rapid.Bool().Draw(t, "canonical") {
				key = textproto.CanonicalMIMEHeaderKey(key)
			}
			header[key] = append(header[key], word.Draw(t, "value"))
		}
		u := &user.DefaultInfo{
			Name:   rapid.OneOf(word, rapid.SampledFrom(components)).Draw(t, "name"),
			UID:    rapid.SampledFrom([]string{"", "some-uid"}).Draw(t, "uid"),
			Groups: rapid.SliceOfDistinct(rapid.OneOf(word, rapid.Just(fleet.AuthorizedGroup)), rapid.ID).Draw(t, "groups"),
			Extra:  rapid.MapOf(rapid.SampledFrom([]string{"scopes", "example.io/key", user.CredentialIDKey, serviceaccount.PodNameKey, names.EpochExtra, names.UserExtra, "cellplane.io/other"}), rapid.SliceOfN(word, 1, 2)).Draw(t, "extra"),
		}
		before := slices.Clone(u.Groups)
		for _, scope := range []forward.Scope{forward.ToCell(42), forward.Hub} {
			sent := header.Clone()
			forward.SetIdentity(sent, u, scope)
			got := read(t, sent)
			wantGroups := slices.DeleteFunc(slices.Clone(u.Groups), func(g string) bool { return g == fleet.AuthorizedGroup })
			wantExtra := map[string][]string{}
			for key, values := range u.Extra {
				if !strings.HasPrefix(key, "cellplane.io/") {
					wantExtra[key] = values
				}
			}
			if !slices.Contains(components, u.Name) {
				wantExtra[names.UserExtra] = []string{"true"}
			}
			if scope.Cell {
				wantGroups = append(wantGroups, fleet.AuthorizedGroup)
				wantExtra[names.EpochExtra] = []string{"42"}
			}
			if got.GetName() != strings.TrimSpace(u.Name) && got.GetName() != u.Name || got.GetUID() != u.UID || !slices.Equal(got.GetGroups(), wantGroups) && len(wantGroups) > 0 {
				t.Fatalf("%+v is seen as %+v, want groups %q", u, got, wantGroups)
			}
			if !maps.EqualFunc(got.GetExtra(), wantExtra, slices.Equal) {
				t.Fatalf("the extras %v are seen as %v, want %v", u.Extra, got.GetExtra(), wantExtra)
			}
			for key := range sent {
				if lower := strings.ToLower(key); strings.HasPrefix(lower, "impersonate-") || lower == "authorization" || strings.Contains(key, "_") {
					t.Fatalf("the header %s was forwarded", key)
				}
			}
		}
		if !slices.Equal(before, u.Groups) {
			t.Fatal("the user was changed")
		}
	})
}

// TestTokensAmongSubprotocols checks that a token in the handshake of a WebSocket reaches nobody, whoever the identity is for: who has a
// certificate is authenticated by that, and the token is left in the header.
func TestTokensAmongSubprotocols(t *testing.T) {
	const token, channel = "base64url.bearer.authorization.k8s.io.dG9rZW4", "v5.channel.k8s.io"
	for _, test := range []struct {
		name       string
		sent, want []string
	}{
		{"Sec-Websocket-Protocol", []string{channel}, []string{channel}},
		{"Sec-Websocket-Protocol", []string{channel + ", " + token}, []string{channel}},
		{"Sec-Websocket-Protocol", []string{token + "," + channel + ",v4.channel.k8s.io"}, []string{channel + ", v4.channel.k8s.io"}},
		{"Sec-Websocket-Protocol", []string{channel, "\t" + token + " ", "v4.channel.k8s.io"}, []string{channel, "v4.channel.k8s.io"}},
		{"Sec-Websocket-Protocol", []string{token + "," + token}, nil},
		{"Sec-Websocket-Protocol", []string{strings.ToUpper(token)}, nil},
		{"sec_websocket_protocol", []string{channel + "," + token}, []string{channel}},
		{"Sec-Websocket-Protocols", []string{token}, []string{token}}, // another header
	} {
		someone := &user.DefaultInfo{Name: "someone"}
		for place, strip := range map[string]func(http.Header){
			"a cell":  func(h http.Header) { forward.SetIdentity(h, someone, forward.ToCell(42)) },
			"the hub": func(h http.Header) { forward.SetIdentity(h, someone, forward.Hub) },
			"nobody":  forward.StripIdentity,
		} {
			sent := slices.Clone(test.sent)
			header := http.Header{test.name: sent}
			if strip(header); !slices.Equal(header[test.name], test.want) || len(test.want) == 0 && header[test.name] != nil {
				t.Errorf("%s gets %s %q of %q, want %q", place, test.name, header[test.name], test.sent, test.want)
			}
			if !slices.Equal(sent, test.sent) {
				t.Errorf("the header of the client was changed to %q", sent)
			}
		}
	}
}

// BenchmarkSetIdentity measures common and uncommon extras, because every request pays for it.
func BenchmarkSetIdentity(b *testing.B) {
	for name, extra := range map[string]map[string][]string{
		"certificate": {user.CredentialIDKey: {"X509SHA256=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}},
		"unusual":     {"example.io/tenant": {"one"}},
	} {
		b.Run(name, func(b *testing.B) {
			u := &user.DefaultInfo{Name: "alice", Groups: []string{"team-a", user.AllAuthenticated}, Extra: extra}
			sent := http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "Content-Type": {"application/merge-patch+json"}, "User-Agent": {"kubectl"}}
			b.ReportAllocs()
			for b.Loop() {
				header := forward.EndToEnd(sent)
				forward.SetIdentity(header, u, forward.ToCell(42))
			}
		})
	}
}
