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

// tokenVersion names the encoding; a change of meaning needs another name, and both read for a while.
const tokenVersion = "cellplane.io/1"

// maxToken bounds what is decoded at all: the longest position, the longest key and all cells drained, in base64.
const maxToken = 16 << 10

// maxKey bounds a key: namespace, slash and name are at most 317 bytes.
const maxKey = 512

// ErrToken marks a continue token that cannot be used for the request it came with; an API server answers it with 400.
var ErrToken = errors.New("the continue token is not valid; list again from the start without one")

// Token is where a list over several cells goes on after a page.
type Token struct {
	// Resource is what is listed, as `group/resource`, or `resource` of the core group.
	Resource string
	// Namespace is the namespace listed, or "" for all.
	Namespace string
	// Position is what the first page showed, and every further one shows. It is nil once that state is gone and the client has
	// chosen to go on with the most recent one.
	Position *Position
	// After is the key of the last item handed out: `namespace/name`, or `name` of a cluster-scoped object.
	After string
	// Drained are the cells, by index, that have nothing after it.
	Drained []int
}

// tokenFields is the encoding of a Token.
type tokenFields struct {
	Version   string `json:"v"`
	Resource  string `json:"r"`
	Namespace string `json:"n,omitempty"`
	Position  string `json:"rv,omitempty"`
	After     string `json:"k"`
	Drained   []int  `json:"d,omitempty"`
}

// Encode returns the token as clients get it.
func (t Token) Encode() (string, error) {
	fields := tokenFields{Version: tokenVersion, Resource: t.Resource, Namespace: t.Namespace, After: t.After, Drained: t.Drained}
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

// ParseToken reads a token that came with a request for a resource in a namespace. A token of another request is an error, so
// that it cannot lead out of what the request was authorized for. All errors are ErrToken.
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
	if err != nil || strings.ContainsAny(s, "\r\n") { // line breaks, which the decoder skips, would make two spellings of one token
		return Token{}, errors.New("it is not base64")
	}
	var fields tokenFields
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&fields); err != nil || decoder.InputOffset() != int64(len(b)) {
		return Token{}, errors.New("it is not a token of this server")
	}
	if fields.Version != tokenVersion {
		return Token{}, fmt.Errorf("its version %.40q is unknown", fields.Version)
	}
	t := Token{Resource: fields.Resource, Namespace: fields.Namespace, After: fields.After, Drained: fields.Drained}
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
		return errors.New("it names no resource")
	}
	if err := validateKey(t.After, t.Namespace); err != nil {
		return err
	}
	cells := MaxCells
	if t.Position != nil {
		cells = len(t.Position.Versions)
	}
	for i, cell := range t.Drained {
		if cell < 0 || cell >= cells || (i > 0 && cell <= t.Drained[i-1]) {
			return errors.New("its list of drained cells is out of order or names a cell that is not there")
		}
	}
	return nil
}

// validateKey keeps keys to what storage paths are made of, so that none climbs out of its resource or namespace.
func validateKey(key, namespace string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) || strings.Count(key, "/") > 1 {
		return errors.New("its key is not that of an object")
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("its key is not that of an object")
		}
	}
	if namespace != "" && (!strings.HasPrefix(key, namespace+"/") || strings.Contains(namespace, "/")) {
		return errors.New("its key is in another namespace")
	}
	return nil
}

// ForCell returns the continue token with which one cell's own API server goes on after this token's key: the form of such tokens is
// stable API of Kubernetes. version is the cell's field of the position; 0 stands for the cell's most recent state.
func (t Token) ForCell(version uint64) string {
	rv := "-1"
	if version != 0 {
		rv = strconv.FormatUint(version, 10)
	}
	// Keys in a cell's tokens are relative to the path the request lists.
	start := t.After
	if t.Namespace != "" {
		start = strings.TrimPrefix(start, t.Namespace+"/")
	}
	key, _ := json.Marshal(start + "\x00") // strings always encode
	return base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":` + rv + `,"start":` + string(key) + `}`))
}
