// Package crds holds the CustomResourceDefinitions of every stored kind, generated from the Go types, and installs
// them.
package crds

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// All returns the definitions, ordered by name. The caller may change them.
func All() []*apiextensionsv1.CustomResourceDefinition {
	all := make([]*apiextensionsv1.CustomResourceDefinition, len(documents()))
	for i, document := range documents() {
		all[i] = document.definition.DeepCopy()
	}
	return all
}

//go:embed *.yaml
var files embed.FS

// documents are parsed on first use. The files are embedded, so a parse error is a build error.
var documents = sync.OnceValue(func() []document {
	loaded, err := load()
	if err != nil {
		panic(err)
	}
	return loaded
})

type document struct {
	definition *apiextensionsv1.CustomResourceDefinition
	json       []byte
}

func load() ([]document, error) {
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errors.New("no CRD is embedded")
	}
	loaded := make([]document, 0, len(paths))
	for _, path := range paths {
		content, err := files.ReadFile(path)
		if err != nil {
			return nil, err
		}
		json, err := yaml.YAMLToJSON(content)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(json, definition); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", path, err)
		}
		if definition.Name == Marker {
			if json, err = mark(json); err != nil {
				return nil, fmt.Errorf("marking %s: %w", path, err)
			}
			if err := yaml.UnmarshalStrict(json, definition); err != nil {
				return nil, fmt.Errorf("decoding %s: %w", path, err)
			}
		}
		loaded = append(loaded, document{definition: definition, json: json})
	}
	slices.SortFunc(loaded, func(a, b document) int {
		return strings.Compare(a.definition.Name, b.definition.Name)
	})
	return loaded, nil
}
