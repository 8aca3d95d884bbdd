package pki

import (
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
	if left := time.Until(cert.NotAfter); left < renewBefore {
		t.Errorf("the certificate is valid for %s only", left)
	}
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
