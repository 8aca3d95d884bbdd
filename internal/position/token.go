package position

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tokenVersion names the encoding. A change needs another name, and both must be accepted for a while.
const tokenVersion = "cellplane.io/1"

// maxToken limits the tokens that are decoded: the longest position, the longest key and all cells drained, in base64.
const maxToken = 16 << 10

// maxKey limits a key: namespace, slash and name are at most 317 bytes.
const maxKey = 512

// ErrToken marks a continue token that is not valid for its request; an API server answers it with 400.
var ErrToken = errors.New("the continue token is not valid; list again from the start without one")

// Token is where a list over several cells continues after a page.
type Token struct {
	// Resource is the listed resource, as `group/resource`, or `resource` in the core group.
	Resource string
	// Namespace is the namespace listed, or "" for all.
	Namespace string
	// Position is the state that all pages show. It is nil if that state has expired and the client continues with the most recent one.
	Position *Position
	// After is the key of the last item: `namespace/name`, or `name` of a cluster-scoped object.
	After string
	// Drained are the indexes of the cells that have no items after it.
	Drained []int
	// Hidden is how many objects after it the cells have that the list does not show; −1 if that is not known.
	Hidden int
}

// tokenFields is the encoding of a Token.
type tokenFields struct {
	Version   string `json:"v"`
	Resource  string `json:"r"`
	Namespace string `json:"n,omitempty"`
	Position  string `json:"rv,omitempty"`
	After     string `json:"k"`
	Drained   []int  `json:"d,omitempty"`
	Hidden    int    `json:"h,omitempty"`
}

// Encode returns the encoded token.
func (t Token) Encode() (string, error) {
	fields := tokenFields{Version: tokenVersion, Resource: t.Resource, Namespace: t.Namespace, After: t.After, Drained: t.Drained, Hidden: t.Hidden}
	if t.Position != nil {
		rv, err := t.Position.Encode()
		if err != nil {
			return "", fmt.Errorf("encoding a continue token: %w", err)
		}
		fields.Position = rv
	}
	if err := t.validate(); err != nil {
		return "", fmt.Errorf("encoding a continue token: %w", err)
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("encoding a continue token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// ParseToken decodes the token of a request for a resource in a namespace. It refuses a token for anything else, since the request is not
// authorized for that. All errors are ErrToken.
func ParseToken(s, resource, namespace string) (Token, error) {
	t, err := parseToken(s)
	if err != nil {
		return Token{}, fmt.Errorf("%w (%w)", ErrToken, err)
	}
	if t.Resource != resource || t.Namespace != namespace {
		return Token{}, fmt.Errorf("%w (it belongs to a list of %.80q in namespace %.80q)", ErrToken, t.Resource, t.Namespace)
	}
	return t, nil
}

func parseToken(s string) (Token, error) {
	if len(s) > maxToken {
		return Token{}, errors.New("it is too long")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || strings.ContainsAny(s, "\r\n") { // the decoder skips line breaks; a token must have one spelling
		return Token{}, errors.New("it is not base64")
	}
	var fields tokenFields
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&fields); err != nil || decoder.InputOffset() != int64(len(b)) {
		return Token{}, errors.New("it was not issued by this API")
	}
	if fields.Version != tokenVersion {
		return Token{}, fmt.Errorf("unknown version %.40q", fields.Version)
	}
	t := Token{Resource: fields.Resource, Namespace: fields.Namespace, After: fields.After, Drained: fields.Drained, Hidden: fields.Hidden}
	if fields.Position != "" {
		p, err := Parse(fields.Position)
		if err != nil {
			return Token{}, err
		}
		t.Position = &p
	}
	return t, t.validate()
}

func (t Token) validate() error {
	if t.Resource == "" || len(t.Resource) > maxKey {
		return errors.New("it has no valid resource")
	}
	if err := validateKey(t.After, t.Namespace); err != nil {
		return err
	}
	if t.Hidden < -1 {
		return errors.New("its number of hidden objects is not valid")
	}
	cells := MaxCells
	if t.Position != nil {
		cells = len(t.Position.Versions)
	}
	for i, cell := range t.Drained {
		if cell < 0 || cell >= cells || (i > 0 && cell <= t.Drained[i-1]) {
			return errors.New("its list of drained cells is not sorted or names an unknown cell")
		}
	}
	return nil
}

// validateKey refuses keys that could lead out of their resource or namespace as part of a storage path.
func validateKey(key, namespace string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) || strings.Count(key, "/") > 1 {
		return errors.New("its key is not the key of an object")
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("its key is not the key of an object")
		}
	}
	if namespace != "" && (!strings.HasPrefix(key, namespace+"/") || strings.Contains(namespace, "/")) {
		return errors.New("its key is in another namespace")
	}
	return nil
}

// ForCell returns the continue token with which the API server of a cell continues after this token's key. The form of such tokens is
// stable in Kubernetes. version is the cell's field of the position; 0 means the most recent state.
func (t Token) ForCell(version uint64) string {
	rv := "-1"
	if version != 0 {
		rv = strconv.FormatUint(version, 10)
	}
	// Keys in a cell's tokens are relative to the listed path.
	start := t.After
	if t.Namespace != "" {
		start = strings.TrimPrefix(start, t.Namespace+"/")
	}
	key, _ := json.Marshal(start + "\x00") // strings always encode
	return base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":` + rv + `,"start":` + string(key) + `}`))
}
