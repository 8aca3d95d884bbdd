package ports

import (
	"net"
	"strconv"
	"testing"
)

func TestChosenPortsAreReserved(t *testing.T) {
	port, err := Choose()
	if err != nil {
		t.Fatal(err)
	}
	if err := Reserve(port); err == nil {
		t.Error("a chosen port was reserved twice")
	}
	Release(port)
	if err := Reserve(port); err != nil {
		t.Errorf("a released port cannot be reserved: %v", err)
	}
	Release(port)
}

func TestPortsInUseAreRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, text, _ := net.SplitHostPort(listener.Addr().String())
	port, _ := strconv.Atoi(text)
	if err := Reserve(port); err == nil {
		t.Errorf("port %d was reserved although a program listens on it", port)
	}
}
