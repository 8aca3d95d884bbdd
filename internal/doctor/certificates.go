package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

// checkCertificates looks at the certificates that API servers and etcds serve, at those in the Secrets of Cells, and at those of agents.
func (d *Doctor) checkCertificates(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	add := func(object string, chain []*x509.Certificate) {
		for _, c := range chain {
			findings = append(findings, d.certificate(object, c)...)
		}
	}
	served, err := servedAt(ctx, d.hub.config.Host)
	if err != nil {
		return nil, err
	}
	add("API server of the hub", served)
	for i := range d.cells {
		cell := &d.cells[i]
		if d.state(cell.Name) == cellplanev1alpha1.CellStateFailed {
			continue
		}
		if served, err := servedAt(ctx, cell.Spec.Endpoint.Server); err == nil { // otherwise it is unreachable, which is told elsewhere
			add("API server of cell "+cell.Name, served)
		}
		for _, ref := range []cellplanev1alpha1.SecretReference{cell.Spec.Credentials.SecretRef, cell.Spec.Etcd.SecretRef} {
			chain, err := d.inSecret(ctx, ref)
			if err != nil {
				return findings, err
			}
			add("Secret "+ref.Namespace+"/"+ref.Name, chain)
		}
		for _, endpoint := range cell.Spec.Etcd.Endpoints {
			if served, err := servedAt(ctx, endpoint); err == nil {
				add("etcd of cell "+cell.Name+" at "+endpoint, served)
			}
		}
	}
	return append(findings, d.agentCertificates()...), nil
}

// certificate tells of a certificate with less than a tenth of its validity left.
func (d *Doctor) certificate(object string, c *x509.Certificate) []Finding {
	left := c.NotAfter.Sub(d.now())
	switch {
	case left <= 0:
		return []Finding{find(CertificateExpires, Error, object, fmt.Sprintf("the certificate of %s ended at %s", c.Subject, c.NotAfter.UTC().Format(time.RFC3339)))}
	case left < c.NotAfter.Sub(c.NotBefore)/10:
		return []Finding{find(CertificateExpires, Warning, object, fmt.Sprintf("the certificate of %s ends at %s", c.Subject, c.NotAfter.UTC().Format(time.RFC3339)))}
	default:
		return nil
	}
}

// servedAt returns the certificates that a server presents. It does not verify them: clients do, and this looks only at their end.
func servedAt(ctx context.Context, address string) ([]*x509.Certificate, error) {
	server, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	host := server.Host
	if server.Port() == "" {
		host = net.JoinHostPort(server.Hostname(), "443")
	}
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	var presented []*x509.Certificate
	dialer := &tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // nothing is sent
		VerifyConnection: func(state tls.ConnectionState) error {
			presented = state.PeerCertificates
			return nil
		},
	}}
	connection, err := dialer.DialContext(ctx, "tcp", host)
	switch {
	case err == nil:
		_ = connection.Close()
	case presented == nil: // otherwise the server wants a certificate of the client, as etcds do
		return nil, fmt.Errorf("reading the certificate of %s: %w", address, err)
	}
	return presented, nil
}

// inSecret returns the certificates in a Secret of a Cell, none if there is none.
func (d *Doctor) inSecret(ctx context.Context, ref cellplanev1alpha1.SecretReference) ([]*x509.Certificate, error) {
	secret := &corev1.Secret{}
	if err := d.hub.client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil // the cell is unreachable
		}
		return nil, fmt.Errorf("reading Secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	var all []*x509.Certificate
	for _, key := range []string{corev1.TLSCertKey, fleet.StoreCAKey} {
		if len(secret.Data[key]) == 0 {
			continue
		}
		parsed, err := cert.ParseCertsPEM(secret.Data[key])
		if err != nil {
			return nil, fmt.Errorf("reading %s of Secret %s/%s: %w", key, ref.Namespace, ref.Name, err)
		}
		all = append(all, parsed...)
	}
	return all, nil
}

// agentCertificates tells of agents whose certificates have all ended.
func (d *Doctor) agentCertificates() []Finding {
	var findings []Finding
	for i := range d.clusters {
		listed := d.clusters[i].Annotations[names.AgentKeysAnnotation]
		if listed == "" {
			continue
		}
		var ends []time.Time
		for entry := range strings.SplitSeq(listed, ",") {
			if _, text, found := strings.Cut(entry, "="); found {
				if end, err := time.Parse(time.RFC3339, text); err == nil {
					ends = append(ends, end)
				}
			}
		}
		if len(ends) == 0 {
			continue
		}
		if last := slices.MaxFunc(ends, time.Time.Compare); last.Before(d.now()) {
			findings = append(findings, find(CertificateExpires, Error, "Cluster "+d.clusters[i].Name, "the last certificate of its agent ended at "+last.UTC().Format(time.RFC3339)))
		}
	}
	return findings
}
