package tunnel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// upgradeWithin bounds how long the answer to a request for an upgrade may take.
const upgradeWithin = 10 * time.Second

// maxRefusal bounds what is read of an answer that is no upgrade.
const maxRefusal = 64 << 10

// Ask sends a request to upgrade a connection. It returns the answer, with the connection if that is switched to the protocol.
func Ask(ctx context.Context, through http.RoundTripper, at url.URL, protocol string, header http.Header) (*http.Response, io.ReadWriteCloser, error) {
	ctx, cancel := context.WithCancel(ctx) // what it ends afterwards is not the connection
	defer cancel()
	defer time.AfterFunc(upgradeWithin, cancel).Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	for key, values := range header {
		request.Header[key] = values
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	response, err := through.RoundTrip(request)
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		said, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
		_ = response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(said))
		return response, nil, err
	}
	connection, ok := response.Body.(io.ReadWriteCloser)
	if !ok || response.Header.Get("Upgrade") != protocol {
		_ = response.Body.Close()
		return nil, nil, fmt.Errorf("the answer switches to %q, not to %s", response.Header.Get("Upgrade"), protocol)
	}
	return response, connection, nil
}

// Take takes the connection of a request that is upgraded to a protocol over from its server, after the answer with the header.
func Take(w http.ResponseWriter, protocol string, header http.Header) (net.Conn, error) {
	connection, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("taking over a connection: %w", err)
	}
	answer := http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: header.Clone()}
	if answer.Header == nil {
		answer.Header = http.Header{}
	}
	answer.Header.Set("Connection", "Upgrade")
	answer.Header.Set("Upgrade", protocol)
	err = answer.Write(connection)
	if err == nil && buffered.Reader.Buffered() > 0 {
		err = fmt.Errorf("the client sent data before the connection was switched to %s", protocol)
	}
	if err != nil {
		_ = connection.Close()
		return nil, err
	}
	return connection, nil
}

// Connection makes a net.Conn of what an upgrade has left. It has no deadlines, which HTTP clients do not need.
func Connection(of io.ReadWriteCloser) net.Conn { return upgraded{of} }

type upgraded struct{ io.ReadWriteCloser }

type address struct{}

// Network implements net.Addr.
func (address) Network() string { return "tunnel" }

// String implements net.Addr.
func (address) String() string { return "tunnel" }

// LocalAddr implements net.Conn.
func (upgraded) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (upgraded) RemoteAddr() net.Addr { return address{} }

// SetDeadline implements net.Conn.
func (upgraded) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (upgraded) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (upgraded) SetWriteDeadline(time.Time) error { return nil }
