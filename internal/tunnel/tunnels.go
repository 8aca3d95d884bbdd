package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// ErrNone is the error of a connection to a cluster whose agent has no tunnel, or none that works.
var ErrNone = errors.New("no agent of the cluster has opened a tunnel")

// Tunnels are the open tunnels of agents at one end. The zero value is ready for use.
type Tunnels struct {
	patience time.Duration // acceptWithin, if it is 0

	mu     sync.Mutex
	open   map[string][]*yamux.Session // by cluster; the newest is the last
	closed bool
}

// Serve keeps a tunnel to a cluster open until it ends, and closes the connection.
func (t *Tunnels) Serve(cluster string, connection io.ReadWriteCloser) error {
	session, err := yamux.Client(connection, config())
	if err != nil {
		_ = connection.Close()
		return fmt.Errorf("opening a tunnel to cluster %s: %w", cluster, err)
	}
	defer session.Close()
	// From now on connections that the agent opens are refused: what they bring would be kept and never read.
	if err := session.GoAway(); err != nil {
		return fmt.Errorf("opening a tunnel to cluster %s: %w", cluster, err)
	}
	if !t.add(cluster, session) {
		return nil
	}
	defer t.remove(cluster, session)
	<-session.CloseChan()
	return nil
}

func (t *Tunnels) add(cluster string, session *yamux.Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.open == nil {
		t.open = map[string][]*yamux.Session{}
	}
	if all := t.open[cluster]; len(all) >= maxTunnels {
		go all[0].Close() // it removes itself
	}
	t.open[cluster] = append(t.open[cluster], session)
	return true
}

func (t *Tunnels) remove(cluster string, session *yamux.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[cluster] = slices.DeleteFunc(t.open[cluster], func(other *yamux.Session) bool { return other == session })
	if len(t.open[cluster]) == 0 {
		delete(t.open, cluster)
	}
}

// Close ends all tunnels, and refuses new ones.
func (t *Tunnels) Close() {
	t.mu.Lock()
	t.closed = true
	var all []*yamux.Session
	for _, sessions := range t.open {
		all = append(all, sessions...)
	}
	t.mu.Unlock()
	for _, session := range all {
		_ = session.Close()
	}
}

// Count returns the number of open tunnels.
func (t *Tunnels) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	count := 0
	for _, sessions := range t.open {
		count += len(sessions)
	}
	return count
}

// Dial connects to the API server of a cluster, as the newest tunnel leads to it that works. The agent has accepted the connection.
func (t *Tunnels) Dial(ctx context.Context, cluster string) (net.Conn, error) {
	t.mu.Lock()
	sessions := slices.Clone(t.open[cluster])
	t.mu.Unlock()
	err := ErrNone
	for _, session := range slices.Backward(sessions) {
		var connection net.Conn
		if connection, err = dial(ctx, session, cmp.Or(t.patience, acceptWithin)); err == nil {
			return connection, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err = fmt.Errorf("%w that works: %w", ErrNone, err)
	}
	return nil, err
}

var errFull = fmt.Errorf("it has %d connections, which is the limit", maxConnections)

// dial opens a connection in a tunnel.
func dial(ctx context.Context, session *yamux.Session, within time.Duration) (net.Conn, error) {
	if session.NumStreams() >= maxConnections {
		return nil, errFull
	}
	stream, err := session.OpenStream()
	if err != nil {
		return nil, err
	}
	_ = stream.SetDeadline(time.Now().Add(within)) // it never fails
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Now()) })
	var first [1]byte
	_, err = io.ReadFull(stream, first[:])
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && first[0] != accepted {
		err = errors.New("the agent speaks another protocol")
	}
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	return stream, stream.SetDeadline(time.Time{})
}
