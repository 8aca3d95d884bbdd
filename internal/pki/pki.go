// Package pki creates the certificate authorities, certificates and keys of control planes, in memory, or as PEM files that
// only their owner can read.
package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	caValidity   = 10 * 365 * 24 * time.Hour
	leafValidity = 365 * 24 * time.Hour
	// clockSkew makes certificates valid shortly before they are issued.
	clockSkew = 5 * time.Minute
)

// Pair is the files of a certificate and its key.
type Pair struct{ CertFile, KeyFile string }

// CA is a certificate authority, stored in a directory.
type CA struct {
	Pair
	*Authority

	mu     sync.Mutex
	issued map[Pair]Leaf // what Ensure was asked for
}

// Leaf describes a certificate. With hosts it is a server certificate, otherwise a client certificate. Peers of etcd need both.
type Leaf struct {
	CommonName    string
	Organizations []string
	Hosts         []string
	Peer          bool
}

// EnsureCA loads the CA <dir>/<name>.crt and .key, or creates it. A CA that is about to expire is renewed with the same key: what it has signed
// stays valid.
func EnsureCA(dir, name string) (*CA, error) {
	pair := pairIn(dir, name)
	cert, key, err := load(pair)
	if err == nil && !due(cert, time.Now()) {
		return newCA(pair, &Authority{cert: cert, key: key}), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("loading the certificate authority %s: %w", name, err)
	}
	if key == nil {
		if key, err = newKey(); err != nil {
			return nil, err
		}
	}
	authority, err := newAuthority("cellplane "+filepath.Base(filepath.Dir(dir))+" "+name, key)
	if err != nil {
		return nil, err
	}
	if err := save(pair, authority.cert, key); err != nil {
		return nil, err
	}
	return newCA(pair, authority), nil
}

func newCA(pair Pair, authority *Authority) *CA {
	return &CA{Pair: pair, Authority: authority, issued: map[Pair]Leaf{}}
}

// due reports whether a certificate has less than a third of its validity left.
func due(cert *x509.Certificate, now time.Time) bool {
	validity := cert.NotAfter.Sub(cert.NotBefore.Add(clockSkew))
	return cert.NotAfter.Sub(now) < validity/3
}

// Ensure loads the certificate <dir>/<name>.crt. It issues a new one if it is missing, about to expire, of another CA, for another leaf or key.
func (ca *CA) Ensure(dir, name string, leaf Leaf) (Pair, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	pair := pairIn(dir, name)
	ca.issued[pair] = leaf
	_, err := ca.ensure(pair, leaf, time.Now())
	return pair, err
}

// Renew issues again those certificates that Ensure has returned and that are about to expire at the given time. It returns what it has issued.
func (ca *CA) Renew(now time.Time) (renewed []Pair, err error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	var errs []error
	for pair, leaf := range ca.issued {
		issued, err := ca.ensure(pair, leaf, now)
		if issued {
			renewed = append(renewed, pair)
		}
		errs = append(errs, err)
	}
	return renewed, errors.Join(errs...)
}

func (ca *CA) ensure(pair Pair, leaf Leaf, now time.Time) (issued bool, err error) {
	cert, key, err := load(pair)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, fmt.Errorf("loading the certificate %s: %w", pair.CertFile, err)
	case ca.good(cert, key, leaf, now):
		return false, nil
	case cert.CheckSignatureFrom(ca.cert) != nil:
		key = nil
	}
	// A renewal keeps the key: only one file changes, and who reads both while it does gets a pair that matches.
	if key == nil {
		if key, err = newKey(); err != nil {
			return false, err
		}
	}
	if err := ca.issue(pair, leaf, key); err != nil {
		return false, err
	}
	return true, nil
}

func (ca *CA) issue(pair Pair, leaf Leaf, key *ecdsa.PrivateKey) error {
	cert, err := ca.sign(leaf, key)
	if err != nil {
		return fmt.Errorf("issuing %s: %w", pair.CertFile, err)
	}
	return save(pair, cert, key)
}

// EnsureKey loads the key pair <dir>/<name>.key and .pub for service account tokens, or creates it. The CertFile of the result
// is the public key.
func EnsureKey(dir, name string) (Pair, error) {
	pair := Pair{CertFile: filepath.Join(dir, name+".pub"), KeyFile: filepath.Join(dir, name+".key")}
	if _, err := os.Stat(pair.KeyFile); err == nil {
		return pair, nil
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, err
	}
	if err := writePEM(pair.CertFile, "PUBLIC KEY", public); err != nil {
		return Pair{}, err
	}
	return pair, writeKey(pair.KeyFile, key)
}

func pairIn(dir, name string) Pair {
	return Pair{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
}

func load(pair Pair) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert, err := os.ReadFile(pair.CertFile)
	if err != nil {
		return nil, nil, err
	}
	key, err := os.ReadFile(pair.KeyFile)
	if err != nil {
		return nil, nil, err
	}
	return Keypair{Cert: cert, Key: key}.parse(pair)
}

// save writes the key first, so that every certificate has a key.
func save(pair Pair, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	if err := writeKey(pair.KeyFile, key); err != nil {
		return err
	}
	return writePEM(pair.CertFile, certType, cert.Raw)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, keyType, der)
}

// writePEM replaces a file atomically. Only its owner can read it.
func writePEM(path, kind string, der []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	scratch := path + ".new"
	if err := os.WriteFile(scratch, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.Rename(scratch, path)
}
