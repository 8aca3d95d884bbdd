// Package identity says how the agent of a cluster is known: by a client certificate whose subject names the cluster, and by the public
// keys that the Cluster lists. Kubernetes cannot revoke certificates; a key that is no longer listed is refused by gateways.
package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/cellplane/cellplane/api/names"
)

// Subject returns the subject of the certificate of a cluster's agent.
func Subject(cluster string) pkix.Name {
	return pkix.Name{CommonName: names.AgentUser(cluster), Organization: []string{names.AgentsGroup}}
}

// Cluster returns the cluster whose agent a user is by its name. It is false for users that are no agents, and the name is empty for a user who
// is in the group of agents and has another name.
func Cluster(user string, groups []string) (name string, agent bool) {
	if name, named := strings.CutPrefix(user, names.AgentPrefix); named {
		return name, true
	}
	return "", slices.Contains(groups, names.AgentsGroup)
}

// Sum returns the SHA-256 sum of the public key of a certificate or of a request for one, given in DER.
func Sum(rawPublicKey []byte) string {
	sum := sha256.Sum256(rawPublicKey)
	return hex.EncodeToString(sum[:])
}

// Key is a public key of an agent.
type Key struct {
	// Sum identifies it.
	Sum string
	// Until is when its certificate ends.
	Until time.Time
}

// keysKept is how many keys a Cluster lists: the present one, its successor, and some of renewals that failed midway.
const keysKept = 10

// AddKey returns the annotation of a Cluster with one more key. Keys of certificates that have ended are removed. If there are too many, the
// last one makes room: renewals that failed midway have left it, while an older one is in use.
func AddKey(annotation string, key Key, now time.Time) string {
	keys := slices.DeleteFunc(parse(annotation), func(k Key) bool { return k.Sum == key.Sum || k.Until.Before(now) })
	keys = append(keys[:min(len(keys), keysKept-1)], key)
	texts := make([]string, len(keys))
	for i, k := range keys {
		texts[i] = k.Sum + "=" + k.Until.UTC().Format(time.RFC3339)
	}
	return strings.Join(texts, ",")
}

// HasKey reports whether the annotation of a Cluster lists a key.
func HasKey(annotation, sum string) bool {
	return slices.ContainsFunc(parse(annotation), func(k Key) bool { return k.Sum == sum })
}

// Accepts reports whether a certificate is that of the agent of a Cluster with this annotation. A Cluster without the annotation was not
// registered, and its agent gets certificates in another way.
func Accepts(annotations map[string]string, certificate *x509.Certificate) bool {
	annotation, registered := annotations[names.AgentKeysAnnotation]
	return !registered || HasKey(annotation, Sum(certificate.RawSubjectPublicKeyInfo))
}

// parse leaves out what it does not understand.
func parse(annotation string) []Key {
	var keys []Key
	for text := range strings.SplitSeq(annotation, ",") {
		sum, end, _ := strings.Cut(text, "=")
		until, err := time.Parse(time.RFC3339, end)
		if len(sum) == hex.EncodedLen(sha256.Size) && err == nil {
			keys = append(keys, Key{Sum: sum, Until: until})
		}
	}
	return keys
}
