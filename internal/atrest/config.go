package atrest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"
)

// ConfigKey is the key of the EncryptionConfiguration in a Secret.
const ConfigKey = "encryption.yaml"

// ErrKeys means that the configuration is not that of the API servers: a key is missing, is another one, or cannot be checked.
var ErrKeys = errors.New("encryption at rest")

// keyLike matches what may be key material in the message of a parser.
var keyLike = regexp.MustCompile(`[A-Za-z0-9+/=_-]{24,}`)

// withoutKeys returns the error of a parser in one line and without what may be key material.
func withoutKeys(err error) error {
	return errors.New(keyLike.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), "…"))
}

// parse reads an EncryptionConfiguration. No error contains key material.
func parse(text []byte) (*apiserverv1.EncryptionConfiguration, error) {
	var config apiserverv1.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return nil, withoutKeys(err)
	}
	if config.APIVersion != apiserverv1.SchemeGroupVersion.String() || config.Kind != "EncryptionConfiguration" {
		return nil, fmt.Errorf("it must have apiVersion %s and kind EncryptionConfiguration", apiserverv1.SchemeGroupVersion)
	}
	return &config, nil
}

// none is the list of resources that a configuration does not name.
const none = -1

// listOf returns the index of the list that decides about a resource, as API servers choose it: its name counts more than its group, and that
// more than any.
func listOf(config *apiserverv1.EncryptionConfiguration, resource schema.GroupResource) int {
	for _, pattern := range []schema.GroupResource{resource, {Group: resource.Group, Resource: "*"}, {Group: "*", Resource: "*"}} {
		for i := range config.Resources {
			if slices.ContainsFunc(config.Resources[i].Resources, func(name string) bool { return schema.ParseGroupResource(name) == pattern }) {
				return i
			}
		}
	}
	return none
}

const encryptedPrefix = "k8s:enc:"

// writer is the provider, and its key, with which values are written.
type writer struct {
	provider, key int
	// prefix of the values; empty for the provider identity.
	prefix string
}

// writers returns all that a list has. The first is the one that API servers write with.
func writers(list *apiserverv1.ResourceConfiguration) []writer {
	var all []writer
	for i := range list.Providers {
		provider := &list.Providers[i]
		withKeys := func(kind string, keys []apiserverv1.Key) {
			for j := range keys {
				all = append(all, writer{i, j, encryptedPrefix + kind + ":v1:" + keys[j].Name + ":"})
			}
		}
		switch {
		case provider.AESCBC != nil:
			withKeys("aescbc", provider.AESCBC.Keys)
		case provider.AESGCM != nil:
			withKeys("aesgcm", provider.AESGCM.Keys)
		case provider.Secretbox != nil:
			withKeys("secretbox", provider.Secretbox.Keys)
		case provider.KMS != nil:
			version := provider.KMS.APIVersion
			if version == "" {
				version = "v1"
			}
			all = append(all, writer{i, 0, encryptedPrefix + "kms:" + version + ":" + provider.KMS.Name + ":"})
		case provider.Identity != nil:
			all = append(all, writer{i, 0, ""})
		}
	}
	return all
}

// canEncrypt reports whether a list has a provider that encrypts.
func canEncrypt(list *apiserverv1.ResourceConfiguration) bool {
	return slices.ContainsFunc(writers(list), func(w writer) bool { return w.prefix != "" })
}

// prefixOf returns the prefix of the values that a list writes; empty if it does not encrypt.
func prefixOf(list *apiserverv1.ResourceConfiguration) string {
	if all := writers(list); len(all) > 0 {
		return all[0].prefix
	}
	return ""
}

// writerOf returns which of the writers of a list has written a value.
func writerOf(list *apiserverv1.ResourceConfiguration, stored []byte) (writer, bool) {
	encrypted := strings.HasPrefix(string(stored), encryptedPrefix)
	for _, w := range writers(list) {
		if encrypted == (w.prefix != "") && strings.HasPrefix(string(stored), w.prefix) {
			return w, true
		}
	}
	return writer{}, false
}

// with returns the configuration with another writer for one list.
func with(config *apiserverv1.EncryptionConfiguration, list int, w writer) *apiserverv1.EncryptionConfiguration {
	changed := config.DeepCopy()
	providers := changed.Resources[list].Providers
	toFront(providers, w.provider)
	switch first := &providers[0]; {
	case first.AESCBC != nil:
		toFront(first.AESCBC.Keys, w.key)
	case first.AESGCM != nil:
		toFront(first.AESGCM.Keys, w.key)
	case first.Secretbox != nil:
		toFront(first.Secretbox.Keys, w.key)
	}
	return changed
}

func toFront[T any](all []T, i int) {
	chosen := all[i]
	copy(all[1:i+1], all[:i])
	all[0] = chosen
}

// describe names what a value is encrypted with, without its content: the provider and the key.
func describe(stored []byte) string {
	parts := strings.SplitN(string(stored[:min(len(stored), 300)]), ":", 6)
	switch {
	case len(parts) < 6 || parts[0] != "k8s" || parts[1] != "enc":
		return "not encrypted"
	case parts[2] == "kms":
		return fmt.Sprintf("encrypted by the KMS plug-in %q", parts[4])
	default:
		return fmt.Sprintf("encrypted by %q with the key %q", parts[2], parts[4])
	}
}

// encode returns the configuration as LoadEncryptionConfig reads it.
func encode(config *apiserverv1.EncryptionConfiguration) ([]byte, error) { return json.Marshal(config) }
