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

// floorCommand makes this program a proxy that does nothing else: what any gateway of this kind costs at least.
const floorCommand = "floor"

// startFloor runs a bare proxy in front of the cell that is used directly.
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
	certs := filepath.Join(b.dir, "gateway") // the gateway has made a certificate for this machine
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

// runFloor is the bare proxy's process. It takes everybody for an administrator.
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
