package identity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/agent/identity"
)

func TestCluster(t *testing.T) {
	for _, test := range []struct {
		user   string
		groups []string
		name   string
		agent  bool
	}{
		{"system:karmada:agent:m1", []string{"system:karmada:agents", "system:authenticated"}, "m1", true},
		{"system:karmada:agent:m1", []string{"system:authenticated"}, "m1", true},
		{"system:karmada:agent:", nil, "", true},
		{"alice", []string{"system:karmada:agents"}, "", true},
		{"system:karmada:agents:m1", nil, "", false},
		{"alice", []string{"team-a"}, "", false},
	} {
		if name, agent := identity.Cluster(test.user, test.groups); name != test.name || agent != test.agent {
			t.Errorf("%s in %v: got %q, %v", test.user, test.groups, name, agent)
		}
	}
}

func TestKeys(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key := func(name string, valid time.Duration) identity.Key {
		return identity.Key{Sum: identity.Sum([]byte(name)), Until: now.Add(valid)}
	}
	has := func(annotation, name string) bool { return identity.HasKey(annotation, identity.Sum([]byte(name))) }

	annotation := identity.AddKey("", key("first", time.Hour), now)
	annotation = identity.AddKey(annotation, key("second", 3*time.Hour), now)
	if !has(annotation, "first") || !has(annotation, "second") || has(annotation, "third") {
		t.Fatalf("after two keys: %s", annotation)
	}
	if again := identity.AddKey(annotation, key("second", 3*time.Hour), now); again != annotation {
		t.Errorf("the same key once more: %s, before %s", again, annotation)
	}
	later := identity.AddKey(annotation, key("third", 5*time.Hour), now.Add(2*time.Hour))
	if has(later, "first") || !has(later, "second") || !has(later, "third") {
		t.Errorf("a key that has ended stays, or another is gone: %s", later)
	}
	for i := range 20 {
		annotation = identity.AddKey(annotation, key(strings.Repeat("x", i+1), 24*time.Hour), now)
	}
	if !has(annotation, "first") || !has(annotation, strings.Repeat("x", 20)) || has(annotation, strings.Repeat("x", 19)) || len(annotation) > 1000 {
		t.Errorf("after many keys: %s", annotation)
	}
	for _, text := range []string{"", ",", "=", "abc=2026-01-02T03:04:05Z", identity.Sum(nil) + "=never"} {
		if identity.HasKey(text, identity.Sum(nil)) || identity.HasKey(text, "") || identity.HasKey(text, "abc") {
			t.Errorf("%q lists a key", text)
		}
	}
}
