package local

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The type of configuration files.
const (
	ConfigAPIVersion = "local.cellplane.io/v1alpha1"
	ConfigKind       = "LocalFederation"
)

// Config is the content of a configuration file: the size of a federation and how its processes run.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cells, Members, Nodes and Pull are those of a Spec, if given.
	Cells   *int `json:"cells,omitempty"`
	Members *int `json:"members,omitempty"`
	Nodes   *int `json:"nodes,omitempty"`
	Pull    *int `json:"pull,omitempty"`

	Settings
}

// ReadConfig reads and checks a configuration file.
func ReadConfig(file string) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config, err := parseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}

func parseConfig(data []byte) (*Config, error) {
	data, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, oneLine(err)
	}
	config := &Config{}
	strict, err := kjson.UnmarshalStrict(data, config)
	if err != nil {
		return nil, oneLine(err)
	}
	// The type comes first: fields of another type are all unknown.
	if config.APIVersion != ConfigAPIVersion || config.Kind != ConfigKind {
		return nil, fmt.Errorf("apiVersion and kind must be %s and %s, not %q and %q", ConfigAPIVersion, ConfigKind, config.APIVersion, config.Kind)
	}
	if len(strict) > 0 {
		return nil, strict[0]
	}
	return config, nil
}

// oneLine puts the error of a decoder into one line.
func oneLine(err error) error { return errors.New(strings.Join(strings.Fields(err.Error()), " ")) }

// Resize returns a spec with the sizes that the configuration gives.
func (c *Config) Resize(spec Spec) Spec {
	for _, size := range []struct{ from, to *int }{{c.Cells, &spec.Cells}, {c.Members, &spec.Members}, {c.Nodes, &spec.Nodes}, {c.Pull, &spec.Pull}} {
		if size.from != nil {
			*size.to = *size.from
		}
	}
	return spec
}

// Validate checks the settings against the federation in dir, or a new one of the given spec.
func (c *Config) Validate(dir string, spec Spec) error {
	names := spec.ControlPlaneNames()
	if kept, err := loadState(dir); err == nil {
		names = slices.Concat(names, kept.Added)
	}
	return c.validate(names)
}
