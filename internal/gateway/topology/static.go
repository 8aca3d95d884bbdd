package topology

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/fleet"
)

// Static is a Source of one topology that never changes.
type Static Topology

// Run delivers the topology once.
func (s Static) Run(ctx context.Context, deliver func(Topology)) error {
	s.Ready = true
	topology, _, err := Topology(s).WithOwners(nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "objects are shown with the resourceVersions of their cells")
	}
	deliver(topology)
	<-ctx.Done()
	return nil
}

// file is the format of a topology file. Paths in it are relative to its directory.
type file struct {
	Epoch int64      `json:"epoch"`
	Cells []fileCell `json:"cells"`
}

type fileCell struct {
	Name       string `json:"name"`
	Weight     int32  `json:"weight"`
	Server     string `json:"server"`
	ServerName string `json:"serverName"`
	CAFile     string `json:"caFile"`
	CertFile   string `json:"certFile"`
	KeyFile    string `json:"keyFile"`
}

// FromFile reads a topology from a YAML file:
//
//	epoch: 1
//	cells:
//	- name: cell-a
//	  weight: 1
//	  server: https://10.0.0.1:6443
//	  caFile: cell-a/ca.crt
//	  certFile: cell-a/front-proxy-client.crt
//	  keyFile: cell-a/front-proxy-client.key
func FromFile(path string) (Static, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Static{}, fmt.Errorf("reading the topology file: %w", err)
	}
	var f file
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return Static{}, fmt.Errorf("reading the topology file %s: %w", path, err)
	}
	topology := Static{Epoch: cmp.Or(f.Epoch, 1)}
	for _, cell := range f.Cells {
		endpoint, err := EndpointFromFiles(cell.Server, relative(path, cell.CAFile), relative(path, cell.CertFile), relative(path, cell.KeyFile))
		if err != nil {
			return Static{}, fmt.Errorf("reading the topology file %s: cell %s: %w", path, cell.Name, err)
		}
		endpoint.ServerName = cell.ServerName
		topology.Cells = append(topology.Cells, Cell{Name: cell.Name, Weight: cmp.Or(cell.Weight, 1), Endpoint: endpoint})
	}
	return topology, nil
}

// EndpointFromFiles reads the certificates of an endpoint.
func EndpointFromFiles(server, caFile, certFile, keyFile string) (fleet.Endpoint, error) {
	return fleet.Endpoint{Server: server, CAFile: caFile, CertFile: certFile, KeyFile: keyFile}.LoadFiles()
}

func relative(to, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(to), path)
}
