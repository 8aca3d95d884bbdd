package engine

import (
	"context"
	"net"
	"os"
	"testing"
	"time"
)

// TestPeerAddress checks where the leader can be reached, and when it cannot.
func TestPeerAddress(t *testing.T) {
	for _, test := range []struct{ name, holder, self, want string }{
		{"on the same host", "a_1@127.0.0.1:80", "a_2@127.0.0.1:81", "127.0.0.1:80"},
		{"loopback of another host", "b_1@127.0.0.1:80", "a_2@127.0.0.1:81", ""},
		{"on another host", "b_1@10.0.0.1:80", "a_2@10.0.0.2:80", "10.0.0.1:80"},
		{"any address", "b_1@0.0.0.0:80", "a_2@10.0.0.2:80", ""},
		{"of an engine that does not listen", "b_1", "a_2@10.0.0.2:80", ""},
		{"invalid address", "b_1@nowhere", "a_2@10.0.0.2:80", ""},
	} {
		if got := peerAddress(test.holder, test.self); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// The lease of a leader is released if the leader was reached and has died, and only then.
func TestLeaderDies(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	living, die := context.WithCancel(ctx)
	leader, err := listenForPeers(living, "127.0.0.1:0", "leader")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	self := host + "_standby@127.0.0.1:1"
	if hostOf(leader) != host {
		t.Errorf("the identity is %q", leader)
	}
	released := make(chan string, 10)
	watch := &peerWatch{
		leader: func() string { return leader }, self: self, connected: die,
		release: func(_ context.Context, holder string) error {
			released <- holder
			return nil
		},
	}
	if living.Err() != nil || len(released) > 0 {
		t.Fatal("the leader died before it was watched")
	}
	go watch.run(ctx)
	select {
	case holder := <-released:
		if holder != leader || living.Err() == nil {
			t.Errorf("the lease of %s was released", holder)
		}
	case <-ctx.Done():
		t.Error("the lease was not released")
	}
	if watch.diedWhileWatched(ctx, peerAddress(leader, self)) {
		t.Error("a leader that was never reached counts as dead")
	}
}

// An engine that only drops a connection is not dead.
func TestDroppedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
		}
	}()
	if (&peerWatch{}).diedWhileWatched(t.Context(), listener.Addr().String()) {
		t.Error("an engine that accepts connections counts as dead")
	}
}
