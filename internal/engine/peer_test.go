package engine

import (
	"context"
	"net"
	"os"
	"testing"
	"time"
)

// Where the other engine is reached, and when its silence means nothing.
func TestPeerAddress(t *testing.T) {
	for _, test := range []struct{ name, holder, self, want string }{
		{"on the same host", "a_1@127.0.0.1:80", "a_2@127.0.0.1:81", "127.0.0.1:80"},
		{"loopback of another host", "b_1@127.0.0.1:80", "a_2@127.0.0.1:81", ""},
		{"on another host", "b_1@10.0.0.1:80", "a_2@10.0.0.2:80", "10.0.0.1:80"},
		{"any address", "b_1@0.0.0.0:80", "a_2@10.0.0.2:80", ""},
		{"of an engine that does not listen", "b_1", "a_2@10.0.0.2:80", ""},
		{"nonsense", "b_1@nowhere", "a_2@10.0.0.2:80", ""},
	} {
		if got := peerAddress(test.holder, test.self); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A lease is given up for a leader that was reached and is gone, and for no other.
func TestDeathOfALeader(t *testing.T) {
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
	given := make(chan string, 10)
	watch := &peerWatch{
		leader: func() string { return leader }, self: self, connected: die,
		giveUp: func(_ context.Context, holder string) error {
			given <- holder
			return nil
		},
	}
	if living.Err() != nil || len(given) > 0 {
		t.Fatal("it is dead before anybody looked")
	}
	go watch.run(ctx)
	select {
	case holder := <-given:
		if holder != leader || living.Err() == nil {
			t.Errorf("the lease of %s was given up", holder)
		}
	case <-ctx.Done():
		t.Error("the lease was not given up")
	}
	if watch.diedWhileWatched(ctx, peerAddress(leader, self)) {
		t.Error("one that was never reached is taken for dead")
	}
}

// An engine that only drops a connection lives.
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
		t.Error("one that answers is taken for dead")
	}
}
