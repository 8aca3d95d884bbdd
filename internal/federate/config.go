package federate

import (
	"fmt"
	"os"

	"k8s.io/client-go/transport"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The type of configuration files.
const (
	APIVersion = "install.cellplane.io/v1alpha1"
	Kind       = "Federation"
)

// Config describes a federation. The chart writes it.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Namespace has the Secrets, and Labels are those of the Secrets that are issued.
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels,omitempty"`

	Hub     Plane   `json:"hub"`
	Cells   []Plane `json:"cells"`
	Gateway Gateway `json:"gateway"`

	// Authorities are Secrets of certificate authorities, and Certificates those of certificates. Another issuer writes those that are not listed.
	Authorities  []string      `json:"authorities,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`

	// Wrap, if not nil, wraps the transports to control planes.
	Wrap transport.WrapperFunc `json:"-"`
}

// Plane is a control plane.
type Plane struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	// APIServers is how many API servers a cell has.
	APIServers int32 `json:"apiServers,omitempty"`
	// AdminSecret is the certificate of an administrator, FrontProxySecret that of gateways, and EtcdSecret that of clients of etcd.
	AdminSecret      string   `json:"adminSecret"`
	FrontProxySecret string   `json:"frontProxySecret,omitempty"`
	Etcd             []string `json:"etcd,omitempty"`
	EtcdSecret       string   `json:"etcdSecret,omitempty"`
}

// Gateway is how clients reach the gateways.
type Gateway struct {
	Server string `json:"server"`
	// Publish tells it to clusters that register.
	Publish bool `json:"publish,omitempty"`
	// KubeconfigSecret gets the kubeconfig of an administrator.
	KubeconfigSecret string `json:"kubeconfigSecret"`
}

// Certificate is a certificate in a Secret. With hosts it is for a server, otherwise, or with client, for a client.
type Certificate struct {
	Secret string `json:"secret"`
	// Plane is the control plane that the certificate is for, if it is for one.
	Plane         string   `json:"plane,omitempty"`
	Authority     string   `json:"authority"`
	CommonName    string   `json:"commonName"`
	Organizations []string `json:"organizations,omitempty"`
	Hosts         []string `json:"hosts,omitempty"`
	Client        bool     `json:"client,omitempty"`
}

// ReadConfig reads a configuration file.
func ReadConfig(file string) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config, err := ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}

// ParseConfig reads a configuration.
func ParseConfig(data []byte) (*Config, error) {
	data, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	config := &Config{}
	strict, err := kjson.UnmarshalStrict(data, config)
	if err != nil {
		return nil, err
	}
	if config.APIVersion != APIVersion || config.Kind != Kind {
		return nil, fmt.Errorf("apiVersion and kind must be %s and %s, not %q and %q", APIVersion, Kind, config.APIVersion, config.Kind)
	}
	if len(strict) > 0 {
		return nil, strict[0]
	}
	return config, nil
}
