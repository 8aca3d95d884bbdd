// Package profilefile reads SchedulingProfiles from a configuration file. It validates them and sets defaults by
// the schema of the kind, as an API server does.
package profilefile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/crds"
)

const kind = "SchedulingProfile"

// Read reads the profiles of a file. An empty path returns none.
func Read(path string) ([]*cellplanev1alpha1.SchedulingProfile, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading scheduling profiles: %w", err)
	}
	profiles, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading scheduling profiles from %s: %w", path, err)
	}
	return profiles, nil
}

// Parse parses profiles from YAML documents. The error describes the first problem in one sentence.
func Parse(text []byte) ([]*cellplanev1alpha1.SchedulingProfile, error) {
	rules, err := newRules()
	if err != nil {
		return nil, err
	}
	var profiles []*cellplanev1alpha1.SchedulingProfile
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return profiles, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		content := map[string]any{}
		if err := yaml.UnmarshalStrict(document, &content); err != nil {
			return nil, fmt.Errorf("document %d: %s", n, strings.Join(strings.Fields(err.Error()), " ")) // a multi-line error
		}
		if len(content) == 0 {
			continue
		}
		profile, err := rules.complete(content)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if slices.ContainsFunc(profiles, func(p *cellplanev1alpha1.SchedulingProfile) bool { return p.Name == profile.Name }) {
			return nil, fmt.Errorf("document %d: profile %q is already defined", n, profile.Name)
		}
		profiles = append(profiles, profile)
	}
}

// rules is the schema of the kind.
type rules struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
}

func newRules() (*rules, error) {
	for _, definition := range crds.All() {
		if definition.Spec.Names.Kind != kind || definition.Spec.Group != cellplanev1alpha1.GroupVersion.Group {
			continue
		}
		var schema apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, &schema, nil); err != nil {
			return nil, fmt.Errorf("reading the schema of %s: %w", kind, err)
		}
		structural, err := structuralschema.NewStructural(&schema)
		if err != nil {
			return nil, fmt.Errorf("reading the schema of %s: %w", kind, err)
		}
		validator, _, err := validation.NewSchemaValidator(&schema)
		if err != nil {
			return nil, fmt.Errorf("reading the schema of %s: %w", kind, err)
		}
		return &rules{structural, validator}, nil
	}
	return nil, fmt.Errorf("the schema of %s is missing", kind)
}

// complete converts a document to a profile with defaults.
func (r *rules) complete(content map[string]any) (*cellplanev1alpha1.SchedulingProfile, error) {
	object := unstructured.Unstructured{Object: content}
	if object.GetAPIVersion() != cellplanev1alpha1.GroupVersion.String() || object.GetKind() != kind {
		return nil, fmt.Errorf("want a %s of %s, got %q of %q", kind, cellplanev1alpha1.GroupVersion, object.GetKind(), object.GetAPIVersion())
	}
	if problems := utilvalidation.IsDNS1123Subdomain(object.GetName()); len(problems) > 0 {
		return nil, fmt.Errorf("metadata.name %q: %s", object.GetName(), problems[0])
	}
	unknown := pruning.PruneWithOptions(content, r.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		return nil, fmt.Errorf("profile %q has fields unknown to %s: %s", object.GetName(), kind, strings.Join(unknown, ", "))
	}
	defaulting.Default(content, r.structural)
	if problems := validation.ValidateCustomResource(field.NewPath(""), content, r.validator); len(problems) > 0 {
		return nil, fmt.Errorf("profile %q: %s", object.GetName(), strings.TrimPrefix(problems[0].Error(), "."))
	}
	profile := &cellplanev1alpha1.SchedulingProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, profile); err != nil {
		return nil, fmt.Errorf("profile %q: %w", object.GetName(), err)
	}
	return profile, nil
}
