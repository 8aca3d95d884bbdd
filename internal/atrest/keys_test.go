package atrest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/atrest/atresttest"
)

const (
	relative = "secrets/shop/db"
	key      = "/registry/" + relative
	object   = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db"}}`
)

var secrets = schema.GroupResource{Resource: "secrets"}

func keysFrom(t *testing.T, config []byte) *atrest.Keys {
	t.Helper()
	keys, err := atrest.New("Secret system/cell-a", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(keys.Close)
	return keys
}

// apiServer is what an API server encrypts with.
func apiServer(t *testing.T, config []byte) encryptionconfig.StaticTransformers {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := encryptionconfig.LoadEncryptionConfig(t.Context(), file, false, "test")
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Transformers
}

// probeOf stores probes as an API server does.
func probeOf(server encryptionconfig.StaticTransformers) atrest.Probe {
	return func(ctx context.Context, resource schema.GroupResource) (string, []byte, error) {
		at := "/registry/" + resource.Resource + "/system/probe"
		stored, err := server.TransformerForResource(resource).TransformToStorage(ctx, []byte(object), value.DefaultContext(at))
		return at, stored, err
	}
}

func seal(t *testing.T, keys *atrest.Keys, at string) []byte {
	t.Helper()
	sealed, err := keys.Seal(t.Context(), at, relative, []byte(object), true)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestProviders(t *testing.T) {
	for _, test := range []struct {
		name, provider, prefix string
		bound                  bool // to the key of the value
	}{
		{"AES-CBC", atresttest.Provider("aescbc", "key1"), "k8s:enc:aescbc:v1:key1:", false},
		{"AES-GCM", atresttest.Provider("aesgcm", "key1"), "k8s:enc:aesgcm:v1:key1:", true},
		{"secretbox", atresttest.Provider("secretbox", "key1"), "k8s:enc:secretbox:v1:key1:", false},
		{"KMS", atresttest.KMS("vault", atresttest.StartPlugin(t)), "k8s:enc:kms:v2:vault:", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := atresttest.Config(atresttest.List("secrets", test.provider))
			keys, server := keysFrom(t, config), apiServer(t, config)
			keys.SetProbe(probeOf(server))
			sealed := seal(t, keys, key)
			if !strings.HasPrefix(string(sealed), test.prefix) || strings.Contains(string(sealed), "db") {
				t.Fatalf("the value is stored as %q", sealed)
			}
			plain, outdated, err := server.TransformerForResource(secrets).TransformFromStorage(t.Context(), sealed, value.DefaultContext(key))
			if err != nil || string(plain) != object || outdated {
				t.Fatalf("an API server reads %q, outdated %v: %v", plain, outdated, err)
			}
			stored, err := server.TransformerForResource(secrets).TransformToStorage(t.Context(), []byte(object), value.DefaultContext(key))
			if err != nil {
				t.Fatal(err)
			}
			plain, outdated, err = keys.Open(t.Context(), key, relative, stored)
			if err != nil || string(plain) != object || outdated {
				t.Fatalf("what an API server has stored is %q, outdated %v: %v", plain, outdated, err)
			}
			_, _, err = keys.Open(t.Context(), "/cellplane/backup/cell-a/"+relative, relative, stored)
			if test.bound != errors.Is(err, atrest.ErrKeys) {
				t.Fatalf("reading it under another key: %v", err)
			}
		})
	}
}

// TestRotation rotates the key of an API server, and that of a plug-in.
func TestRotation(t *testing.T) {
	keys := keysFrom(t, atresttest.Config(atresttest.List("configmaps", atresttest.Identity), atresttest.List("secrets", atresttest.Provider("aescbc", "key1"), atresttest.Provider("secretbox", "old", "new"), atresttest.Identity)))
	followed := 0
	for i, step := range []struct{ provider, prefix string }{
		{atresttest.Provider("aescbc", "key1"), "k8s:enc:aescbc:v1:key1:"},
		{atresttest.Provider("secretbox", "new", "old"), "k8s:enc:secretbox:v1:new:"},
		{atresttest.Provider("secretbox", "old"), "k8s:enc:secretbox:v1:old:"},
		{atresttest.Identity, "{"},
		{atresttest.Provider("aescbc", "key1"), "k8s:enc:aescbc:v1:key1:"},
	} {
		before := seal(t, withProbe(keys, atresttest.Provider("aescbc", "key1"), t), key)
		server := apiServer(t, atresttest.Config(atresttest.List("secrets", step.provider)))
		keys.SetProbe(probeOf(server))
		if err := atrest.Check(t.Context(), keys, probeOf(server)); err != nil {
			t.Fatal(err)
		}
		sealed := seal(t, keys, key)
		if !strings.HasPrefix(string(sealed), step.prefix) {
			t.Errorf("with %s, the value is stored as %q", step.prefix, sealed)
		}
		for _, stored := range [][]byte{before, sealed} {
			plain, outdated, err := keys.Open(t.Context(), key, relative, stored)
			if err != nil || string(plain) != object || outdated != !strings.HasPrefix(string(stored), step.prefix) {
				t.Errorf("with %s, %q is %q, outdated %v: %v", step.prefix, stored[:12], plain, outdated, err)
			}
		}
		changes, err := keys.Follow(t.Context())
		if again, errAgain := keys.Follow(t.Context()); again != changes || err != nil || errAgain != nil {
			t.Errorf("with %s, the keys have changed again: %v, %v", step.prefix, err, errAgain)
		}
		if i > 0 && changes == followed { // also if a write has noticed it before
			t.Errorf("with %s, no change was noticed", step.prefix)
		}
		followed = changes
	}
}

// withProbe has the keys follow an API server with a provider.
func withProbe(keys *atrest.Keys, provider string, t *testing.T) *atrest.Keys {
	t.Helper()
	probe := probeOf(apiServer(t, atresttest.Config(atresttest.List("secrets", provider))))
	keys.SetProbe(probe)
	if err := atrest.Check(t.Context(), keys, probe); err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestPluginRotation(t *testing.T) {
	plugin := atresttest.StartPlugin(t)
	config := atresttest.Config(atresttest.List("secrets", atresttest.KMS("vault", plugin)))
	before := keysFrom(t, config)
	before.SetProbe(probeOf(apiServer(t, config)))
	stored := seal(t, before, key)
	plugin.Rotate(t)
	plain, outdated, err := keysFrom(t, config).Open(t.Context(), key, relative, stored)
	if err != nil || string(plain) != object || !outdated {
		t.Errorf("a value under the former key is %q, outdated %v: %v", plain, outdated, err)
	}
}

// TestRefused gives keys that are not those of the API servers. Every error is one sentence without key material.
func TestRefused(t *testing.T) {
	const deployments = "deployments/shop/web"
	other := strings.ReplaceAll(atresttest.Provider("aescbc", "key1"), atresttest.Secret("key1"), atresttest.Secret("another"))
	boxed := strings.ReplaceAll(atresttest.Provider("secretbox", "key1"), atresttest.Secret("key1"), atresttest.Secret("another"))
	for _, test := range []struct {
		name, server, given, want string
	}{
		{"no keys", atresttest.List("secrets", atresttest.Provider("aescbc", "key1")), "", `secrets that an API server stores are encrypted by "aescbc" with the key "key1", and spec.etcd.encryption of the Cell names no keys`},
		{"the key is missing", atresttest.List("secrets", atresttest.Provider("aescbc", "key2", "key1")), atresttest.List("secrets", atresttest.Provider("aescbc", "key1")), `encrypted by "aescbc" with the key "key2", which the list for secrets in Secret system/cell-a does not have`},
		{"another key has its name", atresttest.List("secrets", atresttest.Provider("aescbc", "key1")), atresttest.List("secrets", other), "another key has that name"},
		{"another secretbox key has its name", atresttest.List("secrets", atresttest.Provider("secretbox", "key1")), atresttest.List("secrets", boxed), "another key has that name"},
		{"the resource is missing", atresttest.List("'*.*'", atresttest.Provider("secretbox", "key1")), atresttest.List("secrets", atresttest.Provider("secretbox", "key1")), "configmaps that an API server stores are encrypted"},
		{"the API server does not encrypt", atresttest.List("secrets", atresttest.Identity), atresttest.List("secrets", atresttest.Provider("secretbox", "key1")), "secrets that an API server stores are not encrypted, which the list for secrets"},
		{"two lists are one", atresttest.List("configmaps", atresttest.Identity) + atresttest.List("secrets", atresttest.Provider("secretbox", "key1")), atresttest.List("configmaps, secrets", atresttest.Provider("secretbox", "key1"), atresttest.Identity), `configmaps that an API server stores are not encrypted, and secrets are encrypted by "secretbox" with the key "key1", but one list in Secret system/cell-a has both`},
		{"a list does not encrypt", atresttest.List("configmaps", atresttest.Provider("secretbox", "key1")), atresttest.List("configmaps", atresttest.Identity), "configmaps that an API server stores are encrypted"},
		{"nothing can be probed", atresttest.List("deployments.apps", atresttest.Provider("secretbox", "key1")), atresttest.List("deployments.apps", atresttest.Provider("secretbox", "key1")), "has neither configmaps nor secrets nor leases.coordination.k8s.io"},
		{"the key has another length", atresttest.List("secrets", atresttest.Provider("secretbox", "key1")), strings.ReplaceAll(atresttest.List("secrets", atresttest.Provider("secretbox", "key1")), atresttest.Secret("key1"), atresttest.Secret("key1")[:20]+"===="), "is not valid"},
		{"the plug-in does not run", atresttest.List("secrets", atresttest.KMS("vault", atresttest.StartPlugin(t))), atresttest.List("secrets", atresttest.KMS("vault", &atresttest.Plugin{Endpoint: "unix:///nowhere/s"})), "cannot be decrypted with the keys in Secret system/cell-a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := apiServer(t, atresttest.Config(test.server))
			var keys *atrest.Keys
			if test.given != "" {
				keys = keysFrom(t, atresttest.Config(test.given))
				keys.SetProbe(probeOf(server))
			}
			err := atrest.Check(t.Context(), keys, probeOf(server))
			isRefused(t, err, test.want)
			if test.given == "" {
				return
			}
			for _, at := range []string{relative, deployments} {
				sealed, err := keys.Seal(t.Context(), "/registry/"+at, at, []byte(object), true)
				if keys.Encrypts(at) && err == nil && test.name != "the resource is missing" { // then Secrets can be written
					t.Errorf("%s was written as %q", at, sealed)
				}
			}
		})
	}
}

func isRefused(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.Is(err, atrest.ErrKeys) || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, not %q", err, want)
		return
	}
	for _, name := range []string{"key1", "key2", "another"} {
		if strings.Contains(err.Error(), atresttest.Secret(name)[:16]) {
			t.Errorf("the error contains a key: %v", err)
		}
	}
}

// TestHostileConfigurations are not accepted, and no error contains what may be a key.
func TestHostileConfigurations(t *testing.T) {
	secret := atresttest.Secret("key1")
	for name, config := range map[string]string{
		"nothing":               "",
		"no YAML":               "{" + secret,
		"a key as a field":      string(atresttest.Config("- resources: [secrets]\n  providers:\n  - aescbc: {keys: [{name: key1, " + secret + ": x}]}\n")),
		"a key as a list":       string(atresttest.Config("- resources: [secrets]\n  providers:\n  - aescbc: {keys: [[" + secret + "]]}\n")),
		"a key as a provider":   string(atresttest.Config("- resources: [secrets]\n  providers:\n  - " + secret + "\n")),
		"a key as the kind":     "apiVersion: apiserver.config.k8s.io/v1\nkind: " + secret + "\n",
		"a field twice":         string(atresttest.Config("- resources: [secrets]\n  providers:\n  - aescbc: {keys: [{name: key1, secret: " + secret + ", secret: " + secret + "}]}\n")),
		"another kind":          "apiVersion: v1\nkind: Secret\ndata: {" + "a: " + secret + "}\n",
		"an early version":      strings.ReplaceAll(string(atresttest.Config(atresttest.List("secrets", atresttest.Provider("aescbc", "key1")))), "k8s.io/v1", "k8s.io/v0"),
		"an alias of an anchor": "apiVersion: apiserver.config.k8s.io/v1\nkind: *" + secret[:40] + "\n",
	} {
		_, err := atrest.New("Secret system/cell-a", []byte(config))
		if err == nil || !errors.Is(err, atrest.ErrKeys) || strings.Contains(err.Error(), secret[:20]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, list := range map[string]string{
		"no providers":    "- resources: [secrets]\n  providers: []\n",
		"two in one":      "- resources: [secrets]\n  providers:\n  - {identity: {}, " + atresttest.Provider("aescbc", "key1") + "}\n",
		"no keys":         "- resources: [secrets]\n  providers:\n  - aescbc: {keys: []}\n",
		"no base64":       "- resources: [secrets]\n  providers:\n  - aescbc: {keys: [{name: key1, secret: '" + secret[:43] + "%'}]}\n",
		"a plug-in of v1": "- resources: [secrets]\n  providers:\n  - kms: {name: old, endpoint: 'unix:///s'}\n",
		"twice":           atresttest.List("secrets", atresttest.Provider("aescbc", "key1")) + atresttest.List("'*.*', secrets", atresttest.Provider("aescbc", "key1")),
	} {
		keys := keysFrom(t, atresttest.Config(list))
		keys.SetProbe(probeOf(apiServer(t, atresttest.Config(atresttest.List("secrets", atresttest.Provider("aescbc", "key1"))))))
		_, err := keys.Seal(t.Context(), key, relative, []byte(object), true)
		if err == nil || !errors.Is(err, atrest.ErrKeys) || strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("%s: %v", name, err)
		}
		keys.Encrypts(relative)
		if _, _, err := keys.Open(t.Context(), key, relative, []byte("k8s:enc:aescbc:v1:key1:x")); err == nil {
			t.Errorf("%s: a value was read", name)
		}
	}
}

// TestHostileValues cannot be read, and never as something else.
func TestHostileValues(t *testing.T) {
	config := atresttest.Config(atresttest.List("secrets", atresttest.Provider("aescbc", "key1"), atresttest.Provider("aesgcm", "key2"), atresttest.Provider("secretbox", "key3"), atresttest.KMS("vault", atresttest.StartPlugin(t))))
	keys := keysFrom(t, config)
	keys.SetProbe(probeOf(apiServer(t, config)))
	good := seal(t, keys, key)
	for _, stored := range []string{
		"k8s:enc:", "k8s:enc:aescbc", "k8s:enc:aescbc:v1:", "k8s:enc:aescbc:v1:key1:", "k8s:enc:aescbc:v1:key2:" + string(good[23:]), "k8s:enc:aesgcm:v1:key2:" + string(good[23:]),
		"k8s:enc:secretbox:v1:key3:short", "k8s:enc:kms:v2:vault:\xff\xff", "k8s:enc:kms:v2:other:x", "k8s:enc:kms:v1:vault:x", string(good[:len(good)-16]), string(good[:len(good)-1]),
		"k8s:enc:" + strings.Repeat(":", 1000), "k8s:enc:aescbc:v1:\x00\n\x1b[2J:x",
	} {
		plain, _, err := keys.Open(t.Context(), key, relative, []byte(stored))
		if err == nil {
			t.Errorf("%q is %q", stored, plain)
		} else if strings.ContainsAny(err.Error(), "\x00\n\x1b") {
			t.Errorf("%q: %v", stored, err)
		}
		if _, _, err := (*atrest.Keys)(nil).Open(t.Context(), key, relative, []byte(stored)); !errors.Is(err, atrest.ErrKeys) {
			t.Errorf("without keys, %q: %v", stored, err)
		}
	}
	if _, err := keys.Seal(t.Context(), "/registry/unheardofs/a", "unheardofs/a", []byte(object), true); !errors.Is(err, atrest.ErrKeys) {
		t.Errorf("an object of an unknown resource was written: %v", err)
	}
}

// TestNoAnswer writes as before while no API server answers, and not at all if none ever has. Either way it does not ask again for each write:
// an API server that hangs takes long to fail.
func TestNoAnswer(t *testing.T) {
	config := atresttest.Config(atresttest.List("secrets", atresttest.Provider("aescbc", "key1")))
	asked := 0
	silent := func(context.Context, schema.GroupResource) (string, []byte, error) {
		asked++
		return "", nil, fmt.Errorf("%w: connection refused", atrest.ErrNoAnswer)
	}
	now := time.Unix(1000, 0)
	keys := keysFrom(t, config)
	keys.SetNow(func() time.Time { return now })
	keys.SetProbe(silent)
	for range 3 {
		_, err := keys.Seal(t.Context(), key, relative, []byte(object), true)
		isRefused(t, err, "connection refused")
	}
	if asked != 1 {
		t.Errorf("the API servers were asked %d times at once", asked)
	}
	if _, err := keys.Seal(t.Context(), "/cellplane/backup/cell-a/"+relative, relative, []byte(object), false); err != nil {
		t.Errorf("a copy, which no API server reads: %v", err)
	}
	now = now.Add(6 * time.Second)
	keys.SetProbe(probeOf(apiServer(t, config)))
	seal(t, keys, key)
	keys.SetProbe(silent)
	for attempt := range 3 {
		now, asked = now.Add(21*time.Second), 0
		for range 3 {
			seal(t, keys, key)
		}
		if asked != 1 {
			t.Errorf("attempt %d: the API servers were asked %d times", attempt, asked)
		}
	}
	if err := atrest.Check(t.Context(), keys, silent); !errors.Is(err, atrest.ErrNoAnswer) {
		t.Errorf("without an answer, the keys are right: %v", err)
	}
	keys.SetProbe(func(context.Context, schema.GroupResource) (string, []byte, error) {
		return "", nil, errors.New("forbidden")
	})
	now = now.Add(21 * time.Second)
	_, err := keys.Seal(t.Context(), key, relative, []byte(object), true)
	isRefused(t, err, "forbidden") // an answer
}

// TestMissing has keys that are not known. Everything says why.
func TestMissing(t *testing.T) {
	why := fmt.Errorf("%w: there is no Secret", atrest.ErrKeys)
	keys := atrest.Missing(why)
	defer keys.Close()
	_, _, errOpen := keys.Open(t.Context(), key, relative, []byte(object))
	_, errSeal := keys.Seal(t.Context(), key, relative, []byte(object), false)
	_, errFollow := keys.Follow(t.Context())
	for i, err := range []error{errOpen, errSeal, errFollow, atrest.Check(t.Context(), keys, nil)} {
		if !errors.Is(err, why) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if keys.Encrypts(relative) {
		t.Error("unknown keys encrypt")
	}
}

func TestValidate(t *testing.T) {
	good := atresttest.List("secrets", atresttest.Provider("aescbc", "key1"))
	for name, test := range map[string]struct{ list, want string }{
		"a good one":                {good, ""},
		"a plug-in is not there":    {atresttest.List("secrets", atresttest.KMS("vault", &atresttest.Plugin{Endpoint: "unix:///nowhere/s"})), ""},
		"a key of another length":   {strings.ReplaceAll(good, atresttest.Secret("key1"), atresttest.Secret("key1")[:20]+"===="), "is not valid"},
		"a plug-in of v1":           {"- resources: [secrets]\n  providers:\n  - kms: {name: old, endpoint: 'unix:///s'}\n", "is not valid"},
		"a list that is overridden": {atresttest.List("'*.*'", atresttest.Identity) + good, "is not valid"},
		"an unknown field":          {"- resource: [secrets]\n", "cannot be read"},
	} {
		err := atrest.Validate("encryption.yaml", atresttest.Config(test.list))
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		isRefused(t, err, test.want)
	}
}
