package serve

import (
	"bytes"
	"encoding/json"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/clustercache"
)

// writePretty writes a list as indented JSON.
func (e *encoder) writePretty(w io.Writer, list *clustercache.List) error {
	apiVersion, kind := e.listKind().ToAPIVersionAndKind()
	fields := []struct {
		name  string
		value any
	}{{"kind", kind}, {"apiVersion", apiVersion}, {"metadata", listMeta(list)}}
	items := "items"
	if e.shape == table {
		fields = append(fields, struct {
			name  string
			value any
		}{"columnDefinitions", e.printer.Columns})
		items = "rows"
	}
	var out bytes.Buffer
	out.WriteString("{")
	for _, field := range fields {
		value, err := json.Marshal(field.value)
		if err != nil {
			return err
		}
		out.WriteString("\n  \"" + field.name + "\": ")
		if err := json.Indent(&out, value, "  ", "  "); err != nil {
			return err
		}
		out.WriteString(",")
	}
	out.WriteString("\n  \"" + items + "\": [")
	separator, end := "\n    ", "]\n}\n"
	for item, err := range e.items(list) {
		if err != nil {
			return err
		}
		out.WriteString(separator)
		if err := json.Indent(&out, item, "    ", "  "); err != nil {
			return err
		}
		if _, err := w.Write(out.Bytes()); err != nil {
			return err
		}
		restart(&out)
		separator, end = ",\n    ", "\n  ]\n}\n"
	}
	out.WriteString(end)
	_, err := w.Write(out.Bytes())
	return err
}

// restart empties a buffer, and gives up its memory if that is large.
func restart(buffer *bytes.Buffer) {
	if buffer.Cap() > 64<<10 {
		*buffer = bytes.Buffer{}
	}
	buffer.Reset()
}

// writeYAML writes a list as YAML, its fields sorted.
func (e *encoder) writeYAML(w io.Writer, list *clustercache.List) error {
	apiVersion, kind := e.listKind().ToAPIVersionAndKind()
	before, after := map[string]any{"apiVersion": apiVersion}, map[string]any{"kind": kind, "metadata": listMeta(list)}
	items := "items"
	if e.shape == table {
		before = map[string]any{"apiVersion": apiVersion, "columnDefinitions": e.printer.Columns, "kind": kind, "metadata": listMeta(list)}
		after = nil
		items = "rows"
	}
	if err := writeYAMLFields(w, before); err != nil {
		return err
	}
	head := items + ": []\n"
	if list.Len() > 0 {
		head = items + ":\n"
	}
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	for item, err := range e.items(list) {
		if err != nil {
			return err
		}
		text, err := yaml.JSONToYAML(item)
		if err != nil {
			return err
		}
		if err := writeElement(w, text); err != nil {
			return err
		}
	}
	if after == nil {
		return nil
	}
	return writeYAMLFields(w, after)
}

func writeYAMLFields(w io.Writer, fields map[string]any) error {
	text, err := yaml.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// writeElement writes a YAML document as an element of a sequence. Its lines are indented, except empty ones, which belong to block scalars.
func writeElement(w io.Writer, text []byte) error {
	prefix := "- "
	for line := range bytes.Lines(text) {
		if len(line) > 1 {
			if _, err := io.WriteString(w, prefix); err != nil {
				return err
			}
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		prefix = "  "
	}
	return nil
}
