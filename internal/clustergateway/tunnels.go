package clustergateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/clustergateway/serve"
	"github.com/cellplane/cellplane/internal/tunnel"
)

// takeTunnel takes the tunnel of an agent, unless it has one to this replica. Gateways have checked that it is the agent of the cluster in the path.
func (s *Server) takeTunnel(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != tunnel.Protocol {
		serve.WriteError(w, r, apierrors.NewBadRequest("a tunnel needs a connection that is upgraded to "+tunnel.Protocol))
		return
	}
	for _, list := range r.Header.Values(tunnel.HeldHeader) {
		if slices.Contains(strings.Split(list, ","), s.options.Replica) {
			http.Error(w, "the agent has a tunnel to this replica", http.StatusConflict)
			return
		}
	}
	connection, err := tunnel.Take(w, tunnel.Protocol, http.Header{tunnel.EndHeader: {s.options.Replica}})
	if err != nil {
		return // the agent is gone
	}
	_ = s.tunnels.Serve(r.PathValue("cluster"), connection) // it ends at any time
}

// connectThrough connects a gateway to the API server of the cluster in the path.
func (s *Server) connectThrough(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != tunnel.ConnectionProtocol {
		serve.WriteError(w, r, apierrors.NewBadRequest("a connection to a cluster needs one that is upgraded to "+tunnel.ConnectionProtocol))
		return
	}
	member, err := s.tunnels.Dial(r.Context(), r.PathValue("cluster"))
	if err != nil {
		http.Error(w, fmt.Sprintf("cluster %s: %v", r.PathValue("cluster"), err), http.StatusNotFound)
		return
	}
	defer member.Close()
	gateway, err := tunnel.Take(w, tunnel.ConnectionProtocol, nil)
	if err != nil {
		return // the gateway is gone
	}
	tunnel.Join(gateway, member)
}
