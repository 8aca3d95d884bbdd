// Package agents keeps agents of clusters, and the bootstrap tokens that clusters register with, within their bounds: an agent is accepted
// only with a key that its Cluster lists, and tokens may only be used to register.
package agents

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/agent/identity"
)

// Authenticator lets certificates of agents pass only if their key is registered.
type Authenticator struct {
	// Certificates authenticates requests by client certificates.
	Certificates authenticator.Request
	// Cluster returns a Cluster of the hub, or NotFound.
	Cluster func(name string) (*clusterv1alpha1.Cluster, error)
}

var errNoCluster = errors.New("the certificate is that of an agent, but its subject does not name the agent of a cluster")

// AuthenticateRequest implements authenticator.Request.
func (a *Authenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := a.Certificates.AuthenticateRequest(r)
	if !ok || err != nil {
		return response, ok, err
	}
	name, agent := identity.Cluster(response.User.GetName(), response.User.GetGroups())
	if !agent {
		return response, true, nil
	}
	if name == "" {
		return nil, false, errNoCluster
	}
	cluster, err := a.Cluster(name)
	if apierrors.IsNotFound(err) {
		return nil, false, fmt.Errorf("there is no cluster %s: its agent is no longer accepted", name)
	}
	if err != nil {
		return nil, false, fmt.Errorf("looking up the keys of the agent of cluster %s: %w", name, err)
	}
	if !identity.Accepts(cluster.Annotations, r.TLS.PeerCertificates[0]) {
		return nil, false, fmt.Errorf("the key of the certificate is not registered for the agent of cluster %s", name)
	}
	return response, true, nil
}
