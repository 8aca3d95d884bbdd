package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// A lease does not tell a dead leader from one whose renewals are slow. A short lease is lost on a busy machine; a long
// one leaves the cell without a leader after a crash. So engines also hold a connection to the leader, on which nothing
// is sent. When a process dies, its kernel closes the connection and refuses new ones: then, and only then, the standby
// releases the lease on behalf of the dead leader. In all other cases the lease decides.

const (
	peerCheck    = 200 * time.Millisecond
	peerDial     = 2 * time.Second
	peersAtMost  = 16
	peerRedials  = 3 // how often a peer is dialled again that still accepts connections after one ended
	hostSplitter = "_"
	addrSplitter = "@"
)

// listenForPeers accepts connections until the context ends. It returns the identity for the lease, which includes the
// address.
func listenForPeers(ctx context.Context, address, id string) (identity string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("listening for other engines: %w", err)
	}
	// The listener is closed before the connections: when a peer sees the end of one, new ones are refused.
	closed, closeConnections := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		_ = listener.Close()
		closeConnections()
	})
	go func() {
		open := make(chan struct{}, peersAtMost)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			select {
			case open <- struct{}{}:
			default:
				_ = connection.Close() // this peer has to wait for the lease
				continue
			}
			stop := context.AfterFunc(closed, func() { _ = connection.Close() })
			go func() {
				_, _ = io.Copy(io.Discard, io.LimitReader(connection, 1)) // nothing is sent: this waits for the end
				stop()
				_ = connection.Close()
				<-open
			}()
		}
	}()
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("reading the host name: %w", err)
	}
	return host + hostSplitter + id + addrSplitter + listener.Addr().String(), nil
}

// peerWatch notices the death of the leader.
type peerWatch struct {
	// leader returns the identity of the leader, and self is our own.
	leader func() string
	self   string
	// release releases the lease on behalf of its dead holder.
	release func(ctx context.Context, holder string) error
	// connected is called when there is a connection to the leader; it may be nil.
	connected func()
}

// run watches the leader until the context ends.
func (w *peerWatch) run(ctx context.Context) {
	ticker := time.NewTicker(peerCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		holder := w.leader()
		if holder == "" || holder == w.self {
			continue
		}
		if !w.diedWhileWatched(ctx, peerAddress(holder, w.self)) {
			continue
		}
		klog.FromContext(ctx).Info("the leader has died, releasing its lease", "holder", holder)
		if err := w.release(ctx, holder); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("cannot release the lease of a dead leader, waiting until it expires", "err", err)
		}
	}
}

// peerAddress returns the address of the holder of the lease, "" if it cannot be reached: a loopback address is valid on
// the same host only.
func peerAddress(holder, self string) string {
	_, address, found := strings.Cut(holder, addrSplitter)
	host, _, err := net.SplitHostPort(address)
	if !found || err != nil {
		return ""
	}
	ip := net.ParseIP(host)
	if ip == nil || ip.IsUnspecified() {
		return ""
	}
	if hostOf(holder) != hostOf(self) && ip.IsLoopback() {
		return ""
	}
	return address
}

func hostOf(identity string) string {
	host, _, _ := strings.Cut(identity, hostSplitter)
	return host
}

// diedWhileWatched holds a connection to a process. When it ends, it reports whether the process is dead for certain. A
// process that was never reached does not count as dead.
func (w *peerWatch) diedWhileWatched(ctx context.Context, address string) bool {
	if address == "" {
		return false
	}
	dialer := &net.Dialer{Timeout: peerDial, KeepAlive: 5 * time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	if w.connected != nil {
		w.connected()
	}
	// A process that ends may close a connection before it stops listening, so dial again if it still accepts.
	for range peerRedials {
		hold(ctx, connection)
		if connection, err = dialer.DialContext(ctx, "tcp", address); err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
	}
	_ = connection.Close()
	return false
}

// hold returns when a connection ends.
func hold(ctx context.Context, connection net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	_, _ = io.Copy(io.Discard, io.LimitReader(connection, 1))
	_ = connection.Close()
}
