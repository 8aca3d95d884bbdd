// Package pki creates the certificate authorities, certificates and keys of control planes and stores them as PEM files that
// only their owner can read.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	caValidity   = 10 * 365 * 24 * time.Hour
	leafValidity = 365 * 24 * time.Hour
	// renewBefore is the remaining validity below which a leaf is renewed.
	renewBefore = 30 * 24 * time.Hour
	// clockSkew makes certificates valid shortly before they are issued.
	clockSkew = 5 * time.Minute
)

// Pair is the files of a certificate and its key.
type Pair struct{ CertFile, KeyFile string }

// CA is a certificate authority, stored in a directory.
type CA struct {
	Pair
	cert *x509.Certificate
	key  crypto.Signer
}

// Leaf describes a certificate. With hosts it is a server certificate, otherwise a client certificate. Peers of etcd need both.
type Leaf struct {
	CommonName    string
	Organizations []string
	Hosts         []string
	Peer          bool
}

// EnsureCA loads the CA <dir>/<name>.crt and .key, or creates it.
func EnsureCA(dir, name string) (*CA, error) {
	pair := pairIn(dir, name)
	cert, key, err := load(pair)
	if err == nil {
		return &CA{Pair: pair, cert: cert, key: key}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("loading the certificate authority %s: %w", name, err)
	}
	newKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "cellplane " + filepath.Base(filepath.Dir(dir)) + " " + name},
		NotAfter:              time.Now().Add(caValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	cert, err = sign(template, template, newKey.Public(), newKey)
	if err != nil {
		return nil, err
	}
	if err := save(pair, cert, newKey); err != nil {
		return nil, err
	}
	return &CA{Pair: pair, cert: cert, key: newKey}, nil
}

// Ensure loads the certificate <dir>/<name>.crt. It issues a new one if it is missing, about to expire or of another CA.
func (ca *CA) Ensure(dir, name string, leaf Leaf) (Pair, error) {
	pair := pairIn(dir, name)
	cert, _, err := load(pair)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Pair{}, fmt.Errorf("loading the certificate %s: %w", name, err)
	}
	if err == nil && time.Until(cert.NotAfter) > renewBefore && cert.CheckSignatureFrom(ca.cert) == nil {
		return pair, nil
	}
	return pair, ca.issue(pair, leaf)
}

func (ca *CA) issue(pair Pair, leaf Leaf) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organizations},
		NotAfter: time.Now().Add(leafValidity),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(leaf.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if len(leaf.Hosts) == 0 || leaf.Peer {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	cert, err := sign(template, ca.cert, key.Public(), ca.key)
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
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

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-clockSkew)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func pairIn(dir, name string) Pair {
	return Pair{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
}

func load(pair Pair) (*x509.Certificate, crypto.Signer, error) {
	certDER, err := readPEM(pair.CertFile)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := readPEM(pair.KeyFile)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", pair.CertFile, err)
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", pair.KeyFile, err)
	}
	return cert, key, nil
}

// save writes the key first, so that every certificate has a key.
func save(pair Pair, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	if err := writeKey(pair.KeyFile, key); err != nil {
		return err
	}
	return writePEM(pair.CertFile, "CERTIFICATE", cert.Raw)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func readPEM(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s has no PEM block", path)
	}
	return block.Bytes, nil
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
