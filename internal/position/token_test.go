package position

import (
	"encoding/base64"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/storage"
	"pgregory.net/rapid"
)

func TestTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Token{
			Resource:  rapid.SampledFrom([]string{"pods", "apps/deployments"}).Draw(t, "resource"),
			Namespace: rapid.SampledFrom([]string{"", "default"}).Draw(t, "namespace"),
			After:     "default/" + rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?`).Draw(t, "name"),
			Hidden:    rapid.IntRange(-1, 1000).Draw(t, "hidden"),
		}
		if rapid.Bool().Draw(t, "consistent") {
			p := positions(4).Draw(t, "position")
			want.Position = &p
		}
		for cell := range 4 {
			if rapid.Bool().Draw(t, "drained") {
				want.Drained = append(want.Drained, cell)
			}
		}
		s, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseToken(s, want.Resource, want.Namespace)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("ParseToken(%s) = %+v, %v; want %+v", s, got, err, want)
		}
		for _, other := range [][2]string{{"secrets", want.Namespace}, {want.Resource, "kube-system"}} {
			if _, err := ParseToken(s, other[0], other[1]); !errors.Is(err, ErrToken) {
				t.Fatalf("the token was accepted for %v (%v)", other, err)
			}
		}
	})
}

func TestLargestTokenFits(t *testing.T) {
	token := Token{
		Resource: strings.Repeat("r", 253) + "/" + strings.Repeat("r", 63), Namespace: strings.Repeat("n", 63),
		Position: &Position{Epoch: MaxEpoch, Versions: slices.Repeat([]uint64{MaxVersion}, MaxCells)},
		After:    strings.Repeat("n", 63) + "/" + strings.Repeat("x", 253), Hidden: math.MaxInt,
	}
	for cell := range MaxCells {
		token.Drained = append(token.Drained, cell)
	}
	s, err := token.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseToken(s, token.Resource, token.Namespace); err != nil {
		t.Error(err)
	}
}

func TestParseTokenRefuses(t *testing.T) {
	const rv = `"rv":"100000000070000000000000000042"`
	for name, content := range map[string]string{
		"nothing":                 ``,
		"no object":               `[]`,
		"null":                    `null`,
		"another server's":        `{"v":"meta.k8s.io/v1","rv":5,"start":"a\u0000"}`,
		"version to come":         `{"v":"cellplane.io/2","r":"pods","n":"a","k":"a/b"}`,
		"unknown field":           `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b","x":1}`,
		"something behind":        `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b"}{}`,
		"no key":                  `{"v":"cellplane.io/1","r":"pods","n":"a"}`,
		"key of another place":    `{"v":"cellplane.io/1","r":"pods","n":"a","k":"b/b"}`,
		"key that climbs":         `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/.."}`,
		"key with three parts":    `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b/c"}`,
		"key ending in a slash":   `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/"}`,
		"key with a zero byte":    `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b\u0000"}`,
		"very long key":           `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/` + strings.Repeat("x", maxKey) + `"}`,
		"plain position":          `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b","rv":"42"}`,
		"broken position":         `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b","rv":"x"}`,
		"cell that is not there":  `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b",` + rv + `,"d":[1]}`,
		"negative cell":           `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b","d":[-1]}`,
		"cells out of order":      `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b","d":[2,1]}`,
		"huge number of a cell":   `{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b","d":[99999999999999999999]}`,
		"more than a token holds": strings.Repeat(" ", maxToken),
	} {
		s := base64.RawURLEncoding.EncodeToString([]byte(content))
		if token, err := ParseToken(s, "pods", "a"); !errors.Is(err, ErrToken) {
			t.Errorf("%s: got %+v, %v", name, token, err)
		}
	}
	good := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"cellplane.io/1","r":"pods","n":"a","k":"a/b",` + rv + `,"d":[0]}`))
	if _, err := ParseToken(good, "pods", "a"); err != nil {
		t.Errorf("the valid token was refused: %v", err)
	}
	for _, s := range []string{good + "=", good + "\n", "%", good[:len(good)-1]} {
		if _, err := ParseToken(s, "pods", "a"); !errors.Is(err, ErrToken) {
			t.Errorf("%q was accepted", s)
		}
	}
}

// TestForCell checks the tokens for cells with the API server's own decoder.
func TestForCell(t *testing.T) {
	for _, test := range []struct {
		token   Token
		prefix  string
		version uint64
		key     string
		rv      int64
	}{
		{Token{Resource: "pods", After: "a-b/c"}, "/registry/pods/", 12, "/registry/pods/a-b/c\x00", 12},
		{Token{Resource: "pods", Namespace: "a", After: "a/c"}, "/registry/pods/a/", 12, "/registry/pods/a/c\x00", 12},
		{Token{Resource: "nodes", After: "n1"}, "/registry/nodes/", 0, "/registry/nodes/n1\x00", -1},
	} {
		key, rv, err := storage.DecodeContinue(test.token.ForCell(test.version), test.prefix)
		if err != nil || key != test.key || rv != test.rv {
			t.Errorf("%+v continues at %q, %d (%v); want %q, %d", test.token, key, rv, err, test.key, test.rv)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	p := Position{Epoch: 3, Versions: []uint64{7, 8}}
	seed, err := Token{Resource: "pods", Namespace: "a", After: "a/b", Position: &p, Drained: []int{1}}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhXHUwMDAwIn0")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s, "pods", "a")
		if err != nil {
			return
		}
		again, err := token.Encode()
		if err != nil {
			t.Fatalf("%+v was parsed and cannot be encoded: %v", token, err)
		}
		if back, err := ParseToken(again, "pods", "a"); err != nil || !reflect.DeepEqual(back, token) {
			t.Fatalf("%+v became %+v (%v)", token, back, err)
		}
		if _, _, err := storage.DecodeContinue(token.ForCell(1), "/registry/pods/a/"); err != nil {
			t.Fatalf("a cell cannot decode the token of %+v: %v", token, err)
		}
	})
}
