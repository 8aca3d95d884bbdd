package process

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

// HTTPCheck returns a check that succeeds if a GET of the URL returns 200. For https it trusts the CA in caFile and, if
// files are given, presents a client certificate.
func HTTPCheck(url, caFile, certFile, keyFile string) func(context.Context) error {
	connect := sync.OnceValues(func() (*http.Client, error) {
		config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if caFile != "" {
			ca, err := os.ReadFile(caFile)
			if err != nil {
				return nil, err
			}
			config.RootCAs.AppendCertsFromPEM(ca)
		}
		if certFile != "" {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				cert, err := tls.LoadX509KeyPair(certFile, keyFile) // it may have been renewed
				return &cert, err
			}
		}
		// A kept connection would outlive its server.
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}, nil
	})
	return func(ctx context.Context) error {
		client, err := connect()
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
			return fmt.Errorf("%s: %s", response.Status, body)
		}
		return nil
	}
}
