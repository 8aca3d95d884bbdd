package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCertificatesAreKeptAndVerify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	ca, err := EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	leaf := Leaf{CommonName: "server", Hosts: []string{"localhost", "127.0.0.1"}}
	pair, err := ca.Ensure(dir, "server", leaf)
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := load(pair)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	for _, host := range leaf.Hosts {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("verifying for %s: %v", host, err)
		}
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("a server's certificate serves as a client's")
	}

	again, err := EnsureCA(dir, "ca")
	if err != nil || !again.cert.Equal(ca.cert) {
		t.Fatalf("the CA was replaced (%v)", err)
	}
	if _, err := again.Ensure(dir, "server", leaf); err != nil {
		t.Fatal(err)
	}
	if kept, _, _ := load(pair); !kept.Equal(cert) {
		t.Error("a valid certificate was replaced")
	}
}

func TestCertificatesOfAnotherAuthorityAreReplaced(t *testing.T) {
	dir := t.TempDir()
	old, err := EnsureCA(filepath.Join(dir, "old"), "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := old.Ensure(dir, "client", Leaf{CommonName: "client"})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Ensure(dir, "client", Leaf{CommonName: "client"}); err != nil {
		t.Fatal(err)
	}
	cert, _, err := load(pair)
	if err != nil {
		t.Fatal(err)
	}
	if err := cert.CheckSignatureFrom(ca.cert); err != nil {
		t.Errorf("the certificate was kept: %v", err)
	}
	if due(cert, time.Now()) {
		t.Errorf("the certificate is valid until %s only", cert.NotAfter)
	}
}

// TestUnfitCertificatesAreReplaced keeps no certificate for other hosts, and none whose key was written when a process was killed before it wrote the
// certificate.
func TestUnfitCertificatesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	ca, err := EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	ensured := func(hosts ...string) *x509.Certificate {
		t.Helper()
		pair, err := ca.Ensure(dir, "server", Leaf{CommonName: "server", Hosts: hosts})
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := load(pair)
		if err != nil || !key.PublicKey.Equal(cert.PublicKey) {
			t.Fatalf("the certificate is not that of its key (%v)", err)
		}
		return cert
	}
	first := ensured("a.example")
	if second := ensured("a.example", "b.example"); second.VerifyHostname("b.example") != nil {
		t.Error("a certificate for other hosts was kept")
	} else if !second.PublicKey.(*ecdsa.PublicKey).Equal(first.PublicKey) {
		t.Error("the key was replaced")
	}
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeKey(filepath.Join(dir, "server.key"), key); err != nil {
		t.Fatal(err)
	}
	ensured("a.example", "b.example")
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if _, err := EnsureCA(dir, "ca"); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureKey(dir, "sa"); err != nil {
		t.Fatal(err)
	}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBrokenFilesAreReported(t *testing.T) {
	dir := t.TempDir()
	if _, err := EnsureCA(dir, "ca"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureCA(dir, "ca"); err == nil {
		t.Error("a broken authority was accepted or replaced")
	}
}

// TestGood decides which certificates are kept.
func TestGood(t *testing.T) {
	pair, err := NewAuthority("one")
	if err != nil {
		t.Fatal(err)
	}
	one, err := LoadAuthority(pair)
	if err != nil {
		t.Fatal(err)
	}
	if pair, err = NewAuthority("other"); err != nil {
		t.Fatal(err)
	}
	other, err := LoadAuthority(pair)
	if err != nil {
		t.Fatal(err)
	}
	leaf := Leaf{CommonName: "server", Organizations: []string{"o"}, Hosts: []string{"a.example", "127.0.0.1"}, Peer: true}
	issued, err := one.Issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(change func(*Leaf)) Leaf { l := leaf; change(&l); return l }
	for what, test := range map[string]struct {
		authority *Authority
		pair      Keypair
		leaf      Leaf
		want      bool
	}{
		"as issued":          {one, issued, leaf, true},
		"of another CA":      {other, issued, leaf, false},
		"another host":       {one, issued, changed(func(l *Leaf) { l.Hosts = []string{"b.example", "127.0.0.1"} }), false},
		"another name":       {one, issued, changed(func(l *Leaf) { l.CommonName = "else" }), false},
		"another group":      {one, issued, changed(func(l *Leaf) { l.Organizations = nil }), false},
		"no longer a client": {one, issued, changed(func(l *Leaf) { l.Peer = false }), false},
		"with another key":   {one, Keypair{Cert: issued.Cert, Key: pair.Key}, leaf, false},
		"empty":              {one, Keypair{}, leaf, false},
	} {
		if got := test.authority.Good(test.pair, test.leaf); got != test.want {
			t.Errorf("%s: Good = %v", what, got)
		}
	}
}

// TestRenew renews what is about to expire, and nothing else. The key stays, so that the files match at every moment.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	ca, err := EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Ensure(dir, "long", Leaf{CommonName: "long"}); err != nil {
		t.Fatal(err)
	}
	ca.Validity = time.Minute
	pair, err := ca.Ensure(dir, "short", Leaf{CommonName: "short", Hosts: []string{"localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	before, key, err := load(pair)
	if err != nil {
		t.Fatal(err)
	}
	if renewed, err := ca.Renew(time.Now().Add(30 * time.Second)); err != nil || len(renewed) != 0 {
		t.Fatalf("after half of its validity %v was renewed (%v)", renewed, err)
	}
	ca.Validity = time.Hour
	renewed, err := ca.Renew(time.Now().Add(45 * time.Second))
	if err != nil || len(renewed) != 1 || renewed[0] != pair {
		t.Fatalf("renewed %v (%v), want %v", renewed, err, pair)
	}
	after, sameKey, err := load(pair)
	if err != nil {
		t.Fatal(err)
	}
	if !after.NotAfter.After(before.NotAfter) || after.Subject.CommonName != "short" || after.VerifyHostname("localhost") != nil {
		t.Errorf("the new certificate is that of %s, until %s", after.Subject, after.NotAfter)
	}
	if !key.Equal(sameKey) {
		t.Error("the key was replaced")
	}
}

// TestAuthorityIsRenewed renews an authority that is about to expire. What it has signed stays valid.
func TestAuthorityIsRenewed(t *testing.T) {
	dir := t.TempDir()
	ca, err := EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Ensure(dir, "client", Leaf{CommonName: "client"})
	if err != nil {
		t.Fatal(err)
	}
	old := *ca.cert
	old.NotBefore, old.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Minute)
	if old.Raw, err = x509.CreateCertificate(rand.Reader, &old, &old, ca.key.Public(), ca.key); err != nil {
		t.Fatal(err)
	}
	if err := save(ca.Pair, &old, ca.key); err != nil {
		t.Fatal(err)
	}
	renewed, err := EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if due(renewed.cert, time.Now()) {
		t.Errorf("the authority ends at %s", renewed.cert.NotAfter)
	}
	cert, _, err := load(pair)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(renewed.cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("a certificate of the former authority: %v", err)
	}
}
