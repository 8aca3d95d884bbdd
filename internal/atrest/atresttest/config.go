package atresttest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// Secret returns the key material that belongs to a name, 32 bytes in base64.
func Secret(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Provider returns a provider (aescbc, aesgcm or secretbox) with keys of these names. The first is written with.
func Provider(kind string, keys ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: {keys: [", kind)
	for _, name := range keys {
		fmt.Fprintf(&text, "{name: %s, secret: %q}, ", name, Secret(name))
	}
	return strings.TrimSuffix(text.String(), ", ") + "]}"
}

// KMS returns the provider of a plug-in.
func KMS(name string, plugin *Plugin) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q}", name, plugin.Endpoint)
}

// Identity is the provider that does not encrypt.
const Identity = "identity: {}"

// List is the part of an EncryptionConfiguration for some resources.
func List(resources string, providers ...string) string {
	return fmt.Sprintf("- resources: [%s]\n  providers:\n  - %s\n", resources, strings.Join(providers, "\n  - "))
}

// Config returns an EncryptionConfiguration.
func Config(lists ...string) []byte {
	return []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(lists, ""))
}
