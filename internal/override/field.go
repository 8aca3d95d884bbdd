package override

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// compileField compiles a change of a document in a string field. The document is written back in one canonical form
// (compact JSON in its own key order, YAML in block style with sorted keys), so that the same document and patch always
// give the same text and members see no needless change.
func compileField(spec *policyv1alpha1.FieldOverrider) (func(map[string]any) error, error) {
	at, err := parsePointer(spec.FieldPath)
	if err != nil {
		return nil, err
	}
	if len(spec.JSON) > 0 && len(spec.YAML) > 0 {
		return nil, errors.New("give either json or yaml operations, the field holds one document")
	}
	patch, err := documentPatch(spec)
	if err != nil {
		return nil, err
	}
	return func(obj map[string]any) error {
		if len(patch) == 0 {
			return nil
		}
		value, store, err := at.get(obj)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%s: %w", at, errNotText)
		}
		changed, err := patchDocument(text, patch, len(spec.YAML) > 0)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		store(changed)
		return nil
	}, nil
}

func documentPatch(spec *policyv1alpha1.FieldOverrider) (jsonpatch.Patch, error) {
	type step struct {
		Op    policyv1alpha1.OverriderOperator `json:"op"`
		Path  string                           `json:"path"`
		Value *apiextensionsv1.JSON            `json:"value,omitempty"`
	}
	steps := make([]step, 0, len(spec.JSON)+len(spec.YAML))
	add := func(kind string, op policyv1alpha1.JSONPatchOperation) error {
		if _, err := parsePointer(op.SubPath); err != nil {
			return fmt.Errorf("%s[%d]: subPath: %w", kind, len(steps), err)
		}
		next := step{Op: op.Operator, Path: op.SubPath}
		switch op.Operator {
		case policyv1alpha1.OverriderOpAdd, policyv1alpha1.OverriderOpReplace:
			next.Value = &op.Value
		case policyv1alpha1.OverriderOpRemove:
		default:
			return fmt.Errorf("%s[%d]: unknown operator %q, use add, remove or replace", kind, len(steps), op.Operator)
		}
		steps = append(steps, next)
		return nil
	}
	for _, op := range spec.JSON {
		if err := add("json", op); err != nil {
			return nil, err
		}
	}
	for _, op := range spec.YAML {
		if err := add("yaml", policyv1alpha1.JSONPatchOperation(op)); err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(steps)
	if err != nil {
		return nil, err
	}
	return jsonpatch.DecodePatch(raw)
}

func patchDocument(text string, patch jsonpatch.Patch, isYAML bool) (string, error) {
	document := []byte(text)
	if isYAML {
		if err := expectSingleDocument(document); err != nil {
			return "", err
		}
		if err := objbytes.CheckAliases(document); err != nil {
			return "", fmt.Errorf("the field holds no YAML document to change: %w", err)
		}
		converted, err := yaml.YAMLToJSON(document)
		if err != nil {
			return "", fmt.Errorf("the field holds no YAML document: %w", err)
		}
		document = converted
	} else if !json.Valid(document) {
		return "", errors.New("the field holds no JSON document")
	}
	changed, err := patch.Apply(document)
	if err != nil {
		return "", err
	}
	if isYAML {
		if changed, err = yaml.JSONToYAML(changed); err != nil {
			return "", err
		}
	}
	return string(changed), nil
}

// expectSingleDocument refuses a stream of documents, of which all but the first would be lost.
func expectSingleDocument(text []byte) error {
	documents := 0
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the YAML document: %w", err)
		}
		if len(bytes.TrimSpace(document)) > 0 {
			documents++
		}
		if documents > 1 {
			return errors.New("the field holds several YAML documents, only a single one can be overridden")
		}
	}
}
