package main

import (
	"errors"
	"net/http"
	"path"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/slots"
)

// owners asks the cell of each object directly. The difference to this is the cost of the gateway. A single API server with all objects
// is another baseline, because three API servers on the same cores behave differently.
type owners struct {
	cells      *slots.Map
	hosts      []string
	transports []http.RoundTripper
}

// newOwners connects to the cells behind the gateway.
func (b *bench) newOwners() (*owners, error) {
	behind := make([]slots.Cell, cells)
	for i, cell := range b.federation.Cells[:cells] {
		behind[i] = slots.Cell{Name: cell.Name(), Weight: 1}
	}
	compiled, err := slots.Compile(1, behind)
	if err != nil {
		return nil, err
	}
	o := &owners{cells: compiled, hosts: make([]string, cells), transports: make([]http.RoundTripper, cells)}
	for _, cell := range b.federation.Cells[:cells] {
		i, found := compiled.Index(cell.Name())
		if !found {
			return nil, errors.New("there is no cell " + cell.Name())
		}
		config, err := cell.AdminConfig()
		if err != nil {
			return nil, err
		}
		if o.transports[i], err = rest.TransportFor(config); err != nil {
			return nil, err
		}
		server, _, err := rest.DefaultServerUrlFor(config)
		if err != nil {
			return nil, err
		}
		o.hosts[i] = server.Host
	}
	return o, nil
}

// RoundTrip implements http.RoundTripper for requests for one object.
func (o *owners) RoundTrip(r *http.Request) (*http.Response, error) {
	namespace := path.Base(path.Dir(path.Dir(r.URL.Path)))
	owner := o.cells.Route(slots.Of(namespace, path.Base(r.URL.Path))).New
	r.URL.Host = o.hosts[owner]
	return o.transports[owner].RoundTrip(r)
}
