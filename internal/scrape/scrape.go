// Package scrape serves the metrics of a part to a Prometheus on another host: over TLS, and only to clients with a certificate of the group that
// Kubernetes lets read metrics.
package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/expiry"
)

// Group is the organization of certificates of clients. API servers let it read metrics and health, and nothing else.
const Group = user.MonitoringGroup

// Options are where metrics are served. The zero value means nowhere.
type Options struct {
	Address string
	// CertFile and KeyFile are those of the server. ClientCAFile has the authorities of clients. They are read for each connection.
	CertFile, KeyFile, ClientCAFile string
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Address, "metrics-tls-address", o.Address, "address for /metrics over TLS, for clients with a certificate of the group "+Group+", like :8443 (default: none)")
	flags.StringVar(&o.CertFile, "metrics-tls-cert-file", o.CertFile, "certificate of the server at --metrics-tls-address")
	flags.StringVar(&o.KeyFile, "metrics-tls-private-key-file", o.KeyFile, "key of that certificate")
	flags.StringVar(&o.ClientCAFile, "metrics-client-ca-file", o.ClientCAFile, "authorities of the certificates of clients of --metrics-tls-address")
}

// Validate finds options that do not fit together, and files that cannot be used.
func (o *Options) Validate() error {
	files := []string{o.CertFile, o.KeyFile, o.ClientCAFile}
	if o.Address == "" {
		if slices.ContainsFunc(files, func(file string) bool { return file != "" }) {
			return errors.New("--metrics-tls-cert-file, --metrics-tls-private-key-file and --metrics-client-ca-file need --metrics-tls-address")
		}
		return nil
	}
	if slices.Contains(files, "") {
		return errors.New("--metrics-tls-address needs --metrics-tls-cert-file, --metrics-tls-private-key-file and --metrics-client-ca-file")
	}
	_, err := o.configuration()
	return err
}

const (
	readTimeout  = 10 * time.Second
	writeTimeout = time.Minute
	idleTimeout  = 3 * time.Minute
)

// Serve serves metrics until stop is called, which it must be.
func (o *Options) Serve(ctx context.Context, metrics prometheus.Gatherer) (stop func(), err error) {
	if o.Address == "" {
		return func() {}, nil
	}
	expiry.Track(expiry.File("metrics-serving", o.CertFile), expiry.Authorities("metrics-client-ca", o.ClientCAFile))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("serving metrics: %w; choose another --metrics-tls-address", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	server := &http.Server{
		Handler: allowed(mux), ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return o.configuration() }},
	}
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "cannot serve metrics", "address", o.Address)
		}
	}()
	return func() {
		_ = server.Close()
		_ = listener.Close() // the server may not know it yet
	}, nil
}

// configuration reads the files, so that renewed ones count from the next connection on.
func (o *Options) configuration() (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading --metrics-tls-cert-file and --metrics-tls-private-key-file: %w", err)
	}
	bundle, err := os.ReadFile(o.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading --metrics-client-ca-file: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("--metrics-client-ca-file: %s has no certificate", o.ClientCAFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
		// A resumed session would skip the check of a certificate that has ended.
		SessionTicketsDisabled: true,
	}, nil
}

// allowed serves clients of the Group only.
func allowed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client := r.TLS.PeerCertificates[0]; !slices.Contains(client.Subject.Organization, Group) {
			http.Error(w, "the certificate is not of the group "+Group, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
