// Package tunnel carries connections to the API server of a cluster that cannot be reached, over a connection that its agent has opened.
//
//	agent ── POST clusters/m/tunnel ──▶ gateway ──▶ cluster-gateway      Serve ↔ Tunnels.Serve
//	gateway ── Connect ──▶ cluster-gateway ── Tunnels.Dial ──▶ agent ──▶ API server of m
//
// The agent is the HTTP server of each connection in the tunnel. It opens none itself.
package tunnel

import (
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
	"k8s.io/klog/v2"
)

const (
	// Protocol is the protocol to which a request for a tunnel is upgraded.
	Protocol = "cellplane-tunnel"
	// ConnectionProtocol is that of a request for a connection in a tunnel.
	ConnectionProtocol = "cellplane-connection"

	// Subresource of a Cluster is where its agent opens tunnels, at a gateway.
	Subresource = "tunnel"
	// Path of a cluster-gateway takes the tunnels of the cluster whose name follows.
	Path = "/tunnels/"
	// ConnectionsPath of a cluster-gateway opens connections to the cluster whose name follows.
	ConnectionsPath = "/tunnelled/"

	// HeldHeader lists the ends of the tunnels that an agent has already, separated by commas.
	HeldHeader = "Cellplane-Tunnels"
	// EndHeader in the answer names the end of the new tunnel.
	EndHeader = "Cellplane-Tunnel"
)

const (
	// pingEvery and answerWithin detect a peer that is gone without having closed the connection.
	pingEvery    = 15 * time.Second
	answerWithin = 20 * time.Second
	// accepted is the first byte of a connection. It tells that the agent is there and takes it.
	accepted = 1
	// acceptWithin bounds how long a dead tunnel delays a request, which then takes another one.
	acceptWithin = 5 * time.Second
	// maxConnections bounds the connections in a tunnel, each with up to 256 KiB that nobody has read.
	maxConnections = 512
	// maxTunnels bounds the tunnels of a cluster at one end: a few agents, and what is left of their former connections.
	maxTunnels = 8
)

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = pingEvery, answerWithin
	c.AcceptBacklog = maxConnections
	// A connection that is not accepted ends by itself; that must not end the others.
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = answerWithin
	c.LogOutput, c.Logger = nil, quiet{}
	return c
}

// quiet logs what yamux says at a high level only: its peers may be hostile, and connections end all the time.
type quiet struct{}

// Print implements yamux.Logger.
func (quiet) Print(v ...any) { klog.Background().V(4).Info("tunnel", "said", v) }

// Printf implements yamux.Logger.
func (quiet) Printf(format string, v ...any) { klog.V(4).Infof(format, v...) }

// Println implements yamux.Logger.
func (quiet) Println(v ...any) { klog.Background().V(4).Info("tunnel", "said", v) }

// Join copies between two connections until one of them ends, and closes both.
func Join(a, b io.ReadWriteCloser) {
	done := make(chan struct{}, 2)
	for _, pair := range [][2]io.ReadWriteCloser{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // the connections may end at any time
			done <- struct{}{}
		}()
	}
	<-done
	for _, end := range []io.ReadWriteCloser{a, b} {
		if connection, ok := end.(net.Conn); ok {
			_ = connection.SetDeadline(time.Now()) // that of a tunnel is read until its other end is closed, too
		}
		_ = end.Close()
	}
	<-done
}
