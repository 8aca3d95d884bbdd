package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// headersWithin bounds how long the headers of a request may take.
	headersWithin = 30 * time.Second
	// idleAfter is longer than the time for which gateways keep an idle connection: the end that sends requests should close it.
	idleAfter = 3 * time.Minute
)

// Serve serves the requests that arrive in a tunnel until it or the context ends. It closes the connection.
func Serve(ctx context.Context, connection io.ReadWriteCloser, handler http.Handler) error {
	session, err := yamux.Server(connection, config())
	if err != nil {
		_ = connection.Close()
		return fmt.Errorf("opening a tunnel: %w", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headersWithin, IdleTimeout: idleAfter, ErrorLog: log.New(io.Discard, "", 0),
		// Requests end with the tunnel, and not before: their streams would look complete.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	defer server.Close()
	defer session.Close()
	defer context.AfterFunc(ctx, func() { _ = session.Close() })()
	if err := server.Serve(&acceptor{session}); err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("the tunnel ended: %w", err)
	}
	return nil
}

// acceptor accepts connections in a tunnel.
type acceptor struct{ *yamux.Session }

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	for {
		stream, err := a.AcceptStream()
		if err != nil {
			return nil, err
		}
		if a.NumStreams() <= maxConnections {
			_, err = stream.Write([]byte{accepted})
		}
		if err == nil && a.NumStreams() <= maxConnections {
			return stream, nil
		}
		_ = stream.Close()
	}
}
