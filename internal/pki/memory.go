package pki

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// The types of PEM blocks.
const (
	certType = "CERTIFICATE"
	keyType  = "EC PRIVATE KEY"
)

// Keypair is a certificate and its key, as PEM.
type Keypair struct{ Cert, Key []byte }

// Authority is a certificate authority.
type Authority struct {
	// Validity is that of new certificates; 0 means a year.
	Validity time.Duration

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority creates a certificate authority.
func NewAuthority(commonName string) (Keypair, error) {
	key, err := newKey()
	if err != nil {
		return Keypair{}, err
	}
	authority, err := newAuthority(commonName, key)
	if err != nil {
		return Keypair{}, err
	}
	return encode(authority.cert, key)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func newAuthority(commonName string, key *ecdsa.PrivateKey) (*Authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotAfter:              time.Now().Add(caValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key}, nil
}

// LoadAuthority returns the authority with a certificate and key.
func LoadAuthority(pair Keypair) (*Authority, error) {
	cert, key, err := pair.parse(Pair{CertFile: "the certificate", KeyFile: "the key"})
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key}, nil
}

// Issue returns a new certificate and key.
func (a *Authority) Issue(leaf Leaf) (Keypair, error) {
	key, err := newKey()
	if err != nil {
		return Keypair{}, err
	}
	cert, err := a.sign(leaf, key)
	if err != nil {
		return Keypair{}, err
	}
	return encode(cert, key)
}

// Good reports whether a certificate is of this authority, is for the leaf, has its key and does not expire soon.
func (a *Authority) Good(pair Keypair, leaf Leaf) bool {
	cert, key, err := pair.parse(Pair{})
	return err == nil && a.good(cert, key, leaf, time.Now())
}

func (a *Authority) good(cert *x509.Certificate, key *ecdsa.PrivateKey, leaf Leaf, now time.Time) bool {
	want := template(leaf)
	return cert.CheckSignatureFrom(a.cert) == nil && !due(cert, now) && key.PublicKey.Equal(cert.PublicKey) &&
		cert.Subject.CommonName == leaf.CommonName && slices.Equal(cert.Subject.Organization, leaf.Organizations) &&
		slices.Equal(cert.DNSNames, want.DNSNames) && slices.EqualFunc(cert.IPAddresses, want.IPAddresses, net.IP.Equal) &&
		slices.Equal(cert.ExtKeyUsage, want.ExtKeyUsage)
}

func (a *Authority) sign(leaf Leaf, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	template := template(leaf)
	template.NotAfter = time.Now().Add(cmp.Or(a.Validity, leafValidity))
	return sign(template, a.cert, key.Public(), a.key)
}

func template(leaf Leaf) *x509.Certificate {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organizations},
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
	return template
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

func encode(cert *x509.Certificate, key *ecdsa.PrivateKey) (Keypair, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return Keypair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: certType, Bytes: cert.Raw}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}),
	}, err
}

// parse decodes the pair. The files are for errors.
func (k Keypair) parse(files Pair) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(k.Cert)
	if block == nil {
		return nil, nil, fmt.Errorf("%s has no PEM block", files.CertFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", files.CertFile, err)
	}
	if block, _ = pem.Decode(k.Key); block == nil {
		return nil, nil, fmt.Errorf("%s has no PEM block", files.KeyFile)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", files.KeyFile, err)
	}
	return cert, key, nil
}
