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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
)

// A lease cannot tell a dead leader from one whose renewals are slow: if it runs out soon, a busy machine costs the
// lead, and if it runs out late, nobody works for long after a crash. So engines also hold a connection to the leader,
// on which nothing is sent. When a process dies its system closes the connection and refuses new ones: then, and only
// then, the standby gives the lease up in the dead one's name. In all other cases the lease decides.

const (
	peerCheck    = 200 * time.Millisecond
	peerDial     = 2 * time.Second
	peersAtMost  = 16
	peerDoubts   = 3 // how often one that still answers after a connection ended is looked at again
	hostSplitter = "_"
	addrSplitter = "@"
)

// listenForPeers accepts connections until the context ends, and returns the identity under which peers find them.
func listenForPeers(ctx context.Context, address, id string) (identity string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("listening for other engines: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
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
				_ = connection.Close() // who has no link waits for the lease
				continue
			}
			stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
			go func() {
				_, _ = io.Copy(io.Discard, io.LimitReader(connection, 1)) // nobody says anything: this waits for the end
				stop()
				_ = connection.Close()
				<-open
			}()
		}
	}()
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding out the name of this host: %w", err)
	}
	return host + hostSplitter + id + addrSplitter + listener.Addr().String(), nil
}

// peerWatch waits for the death of whoever leads.
type peerWatch struct {
	// leader returns the identity of who leads, and self is our own.
	leader func() string
	self   string
	// giveUp gives up the lease in the name of the dead.
	giveUp func(ctx context.Context, holder string) error
	// connected is called when there is a connection to the leader; it may be nil.
	connected func()
}

// run works until the context ends.
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
		klog.FromContext(ctx).Info("the leading engine has died, taking over", "holder", holder)
		if err := w.giveUp(ctx, holder); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("cannot give up the lease of a dead engine, waiting until it runs out", "err", err)
		}
	}
}

// peerAddress returns where the holder of the lease can be reached, "" if it cannot: a loopback address means something
// on the same host only.
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

// diedWhileWatched holds a connection to a process and tells, when it ends, whether the process is gone for sure. One
// that was never reached may be anything.
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
	// A process that ends may close a connection before it stops listening: who still answers is looked at again.
	for range peerDoubts {
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

// giveUpLease releases a lease in the name of its holder, if that is still the same.
func giveUpLease(ctx context.Context, client coordinationv1.LeasesGetter, name, holder string) error {
	lease, err := client.Leases(names.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != holder {
		return nil
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
	_, err = client.Leases(names.SystemNamespace).Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
