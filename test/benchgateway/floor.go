package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/topology"
)

// floorCommand runs this program as a bare proxy: the least cost of any gateway.
const floorCommand = "floor"

// startFloor runs a bare proxy in front of the directly used cell.
func (b *bench) startFloor() error {
	cell := b.federation.Cells[cells]
	proxy, err := cell.FrontProxy()
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	certs := filepath.Join(b.dir, "gateway") // with the serving certificate of the gateway
	b.floor = exec.Command(self, floorCommand, strconv.Itoa(port), filepath.Join(certs, "apiserver.crt"), filepath.Join(certs, "apiserver.key"),
		cell.URL(), cell.CAFile(), proxy.CertFile, proxy.KeyFile)
	b.floor.Stderr = os.Stderr
	b.floor.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.floor.Start(); err != nil {
		return err
	}
	config := rest.CopyConfig(b.configs["gateway"])
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	b.configs["bare"] = config
	return nil
}

// runFloor is the process of the bare proxy. It forwards every request as an administrator.
func runFloor(args []string) error {
	if len(args) != 7 {
		return errors.New("a bare proxy needs a port, a certificate, its key, a server, its authority, and a certificate and key for it")
	}
	endpoint, err := topology.EndpointFromFiles(args[3], args[4], args[5], args[6])
	if err != nil {
		return err
	}
	upstream, err := fleet.NewUpstream("cell", endpoint, 0)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Transport: upstream,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header["X-Remote-User"], p.Out.Header["X-Remote-Group"] = []string{"bench"}, []string{"system:masters"}
		},
	}
	server := &http.Server{Addr: "127.0.0.1:" + args[0], Handler: proxy}
	return server.ListenAndServeTLS(args[1], args[2])
}
