package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootsModule has the certificates of public authorities that Mozilla trusts. It is pinned in go.mod, so that images do
// not depend on the files of the machine that builds them.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// rootsFile is where programs look for certificates of public authorities.
const rootsFile = "etc/ssl/certs/ca-certificates.crt"

// publicRoots returns the certificates as PEM. Those that Mozilla trusts with conditions are left out, because a file
// cannot express the conditions.
func publicRoots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return out.Bytes()
}
