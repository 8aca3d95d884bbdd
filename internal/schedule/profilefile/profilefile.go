// Package profilefile reads SchedulingProfiles from a configuration file. What an API server would refuse is refused, and
// what it would fill in is filled in: both by the schema of the kind.
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

// Read reads the profiles of a file. No file means none.
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

// Parse reads profiles from YAML documents. The error says in one sentence what is wrong with which.
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
			return nil, fmt.Errorf("document %d: %s", n, strings.Join(strings.Fields(err.Error()), " ")) // it comes in lines
		}
		if len(content) == 0 {
			continue
		}
		profile, err := rules.complete(content)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if slices.ContainsFunc(profiles, func(p *cellplanev1alpha1.SchedulingProfile) bool { return p.Name == profile.Name }) {
			return nil, fmt.Errorf("document %d: there is a profile %q already", n, profile.Name)
		}
		profiles = append(profiles, profile)
	}
}

// rules are the schema of the kind.
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
	return nil, fmt.Errorf("this program has no schema of %s", kind)
}

// complete turns a document into a profile, with defaults.
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
		return nil, fmt.Errorf("profile %q has fields that a %s does not: %s", object.GetName(), kind, strings.Join(unknown, ", "))
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
