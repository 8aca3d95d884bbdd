package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	yamlv3 "go.yaml.in/yaml/v3"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/interpreter/customization"
	"github.com/cellplane/cellplane/internal/interpreter/scriptfile"
)

const customizationKind = "ResourceInterpreterCustomization"

// customizationFile is a customization in a file. The rest of the file is preserved, including comments.
type customizationFile struct {
	path string
	name string // selects one if the file has several

	read     []byte
	original *configv1alpha1.ResourceInterpreterCustomization
}

func (f *customizationFile) place() string { return "in " + f.path }

// load finds the customization. It returns a new one if the file is missing or has none.
func (f *customizationFile) load(context.Context) (*configv1alpha1.ResourceInterpreterCustomization, []*configv1alpha1.ResourceInterpreterCustomization, error) {
	text, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	f.read = text
	_, all, err := parseCustomizations(text)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", f.path, err)
	}
	var others []*configv1alpha1.ResourceInterpreterCustomization
	for _, c := range all {
		if f.original == nil && (f.name == "" || f.name == c.Name) {
			f.original = c.ResourceInterpreterCustomization
			continue
		}
		others = append(others, c.ResourceInterpreterCustomization)
	}
	switch {
	case f.original != nil && f.name == "" && len(others) > 0:
		return nil, nil, fmt.Errorf("%s has %d customizations; select one with --edit NAME", f.path, len(all))
	case f.original == nil && f.name != "" && len(all) > 0:
		return nil, nil, fmt.Errorf("there is no customization called %s in %s", f.name, f.path)
	case f.original == nil:
		fresh := &configv1alpha1.ResourceInterpreterCustomization{}
		fresh.Name = f.name
		return fresh, nil, nil
	}
	return f.original, others, nil
}

// save rewrites the file. It first checks that the new content has the changed customization.
func (f *customizationFile) save(_ context.Context, changed *configv1alpha1.ResourceInterpreterCustomization) error {
	text, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(text, f.read) {
		return fmt.Errorf("saving %s: %w", f.path, errChangedMeanwhile)
	}
	if text, err = f.with(changed); err != nil {
		return fmt.Errorf("saving %s: %w", f.path, err)
	}
	_, all, err := parseCustomizations(text)
	if err != nil {
		return fmt.Errorf("saving %s: %w", f.path, err)
	}
	for _, c := range all {
		if scriptfile.Same(c.ResourceInterpreterCustomization, changed) {
			return replaceFile(f.path, text)
		}
	}
	return fmt.Errorf("saving %s: the scripts cannot be represented in the file", f.path)
}

// with returns the file with the original customization replaced.
func (f *customizationFile) with(changed *configv1alpha1.ResourceInterpreterCustomization) ([]byte, error) {
	documents, all, err := parseCustomizations(f.read)
	if err != nil {
		return nil, err
	}
	if f.original == nil {
		fresh := &yamlv3.Node{Kind: yamlv3.MappingNode}
		setText(fresh, configv1alpha1.GroupVersion.String(), "apiVersion")
		setText(fresh, customizationKind, "kind")
		writeInto(fresh, &configv1alpha1.ResourceInterpreterCustomization{}, changed)
		return appendDocument(f.read, fresh)
	}
	for _, c := range all {
		if c.Name == f.original.Name {
			writeInto(c.node, f.original, changed)
		}
	}
	if yamlutil.IsJSONBuffer(f.read) {
		return encodeJSON(documents)
	}
	return encodeYAML(documents...)
}

// customizationNode is a customization and its node in a file.
type customizationNode struct {
	*configv1alpha1.ResourceInterpreterCustomization
	node *yamlv3.Node
}

// parseCustomizations returns the documents of a file, and the customizations in them: documents, or items of lists.
func parseCustomizations(text []byte) ([]*yamlv3.Node, []customizationNode, error) {
	var documents []*yamlv3.Node
	var found []customizationNode
	for decoder := yamlv3.NewDecoder(bytes.NewReader(text)); ; {
		document := &yamlv3.Node{}
		err := decoder.Decode(document)
		if errors.Is(err, io.EOF) {
			return documents, found, nil
		}
		if err != nil {
			return nil, nil, err
		}
		documents = append(documents, document)
		for _, node := range objectsIn(document) {
			c, err := decodeCustomization(node)
			if err != nil {
				return nil, nil, err
			}
			found = append(found, customizationNode{c, node})
		}
	}
}

// objectsIn returns the customizations below a document or list.
func objectsIn(node *yamlv3.Node) []*yamlv3.Node {
	switch node.Kind {
	case yamlv3.DocumentNode, yamlv3.SequenceNode:
		var all []*yamlv3.Node
		for _, child := range node.Content {
			all = append(all, objectsIn(child)...)
		}
		return all
	case yamlv3.MappingNode:
		if kind := child(node, "kind"); kind != nil && kind.Value == customizationKind {
			return []*yamlv3.Node{node}
		}
		if items := child(node, "items"); items != nil {
			return objectsIn(items)
		}
	}
	return nil
}

func decodeCustomization(node *yamlv3.Node) (*configv1alpha1.ResourceInterpreterCustomization, error) {
	text, err := yamlv3.Marshal(node)
	if err != nil {
		return nil, err
	}
	c := &configv1alpha1.ResourceInterpreterCustomization{}
	return c, yaml.UnmarshalStrict(text, c)
}

// writeInto updates a node with the differences between two customizations.
func writeInto(node *yamlv3.Node, old, changed *configv1alpha1.ResourceInterpreterCustomization) {
	if old.Name != changed.Name {
		setText(node, changed.Name, "metadata", "name")
	}
	if old.Spec.Target != changed.Spec.Target {
		setText(node, changed.Spec.Target.APIVersion, "spec", "target", "apiVersion")
		setText(node, changed.Spec.Target.Kind, "spec", "target", "kind")
	}
	for _, rule := range customization.Rules() {
		switch script := rule.Script(changed); {
		case script == rule.Script(old):
		case script == "":
			remove(child(child(node, "spec"), "customizations"), rule.Field)
		default:
			setText(node, script, "spec", "customizations", rule.Field, "luaScript")
		}
	}
}

// child returns the value of a key in a mapping, nil if there is none.
func child(node *yamlv3.Node, key string) *yamlv3.Node {
	if node == nil || node.Kind != yamlv3.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

func remove(node *yamlv3.Node, key string) {
	for i := 0; node != nil && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			node.Content = append(node.Content[:i], node.Content[i+2:]...)
			return
		}
	}
}

// setText sets a string at a path below a mapping, and creates missing mappings.
func setText(node *yamlv3.Node, text string, path ...string) {
	for _, key := range path {
		next := child(node, key)
		if next == nil {
			next = &yamlv3.Node{Kind: yamlv3.MappingNode}
			node.Content = append(node.Content, &yamlv3.Node{Kind: yamlv3.ScalarNode, Value: key}, next)
		}
		node.Style = 0 // block style, for readable scripts
		node = next
	}
	*node = yamlv3.Node{HeadComment: node.HeadComment, LineComment: node.LineComment, FootComment: node.FootComment}
	node.SetString(text)
}

func encodeYAML(documents ...*yamlv3.Node) ([]byte, error) {
	var text bytes.Buffer
	encoder := yamlv3.NewEncoder(&text)
	encoder.SetIndent(2)
	for _, document := range documents {
		if err := encoder.Encode(document); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), encoder.Close()
}

func encodeJSON(documents []*yamlv3.Node) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	for _, document := range documents {
		var value any
		if err := document.Decode(&value); err != nil {
			return nil, err
		}
		if err := encoder.Encode(value); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// appendDocument adds a document to the end of a file.
func appendDocument(text []byte, node *yamlv3.Node) ([]byte, error) {
	more, err := encodeYAML(node)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return more, err
	}
	if yamlutil.IsJSONBuffer(text) {
		return nil, errors.New("it is a JSON file with other objects; give another file")
	}
	return bytes.Join([][]byte{bytes.TrimRight(text, "\n"), []byte("---"), more}, []byte("\n")), nil
}

// replaceFile replaces a file atomically. It keeps the mode, and follows a symbolic link.
func replaceFile(path string, text []byte) error {
	mode := fs.FileMode(0o644)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // err is returned
	}
	return err
}
