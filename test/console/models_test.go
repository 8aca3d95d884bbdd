package console

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestYAML checks that API servers read of the console's YAML what was written.
func TestYAML(t *testing.T) {
	browser := launch(t)
	p := open(t, browser, "about:blank")
	p.load("model/yaml")
	texts := []string{
		"", "plain", "with space", " leading", "trailing ", "a: b", "# no comment", "- item", "yes", "null", "1e3", "0x10", "~", "'", `"`, `\`, "{}", "[]", "!tag", "&a", "*a", "%", "@", "`",
		"one\ntwo", "one\ntwo\n", "one\n\n", "\n", "\none", " one\ntwo", "one \ntwo", "one\ttwo\n", "a\r\nb", "tab\t\nend", "#!/bin/sh\nexec true\n",
		"line\u2028separator\n", "paragraph\u2029separator\nend", "\u2028", "next\u0085line\nend", "\u0085", "\u007f\u0080\u009f", "\ufeffmark\n", "\ufffe\uffff", "\u00a0\n\u00a0", "☃ \U0001f600\nend", "\U0001f600", "\x00\x1b",
	}
	for _, text := range texts {
		want := map[string]any{"value": text, "list": []any{text, map[string]any{"nested": text}}}
		if text != "" {
			want[text] = "key"
		}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		written := evaluate[string](p, fmt.Sprintf("yaml.yaml(%s)", data))
		var got map[string]any
		if err := yaml.UnmarshalStrict([]byte(written), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %q, %v:\n%s", text, got, err, written)
		}
	}
	for value, want := range map[string]string{
		`{"a": [{"b": 9007199254740993}]}`:      "a.0.b",
		`{"a": -9007199254740993}`:              "a",
		`{"a": 9007199254740991, "b": [1.5]}`:   "",
		`{"a": "9007199254740993", "b": null}`:  "",
		`{"a": {"b": 18446744073709551615}}`:    "a.b",
		`{"a": 0, "b": true, "c": [], "d": {}}`: "",
	} {
		if got := evaluate[string](p, fmt.Sprintf("yaml.inexact(JSON.parse(%s)) ?? ''", quote(value))); got != want {
			t.Errorf("%s: the number in %q is not exact, want %q", value, got, want)
		}
	}
}

// TestTextsForPeople checks how numbers, times and words of commands are written.
func TestTextsForPeople(t *testing.T) {
	browser := launch(t)
	p := open(t, browser, "about:blank")
	p.load("lib/quantity")
	p.load("lib/time")
	p.load("model/command")
	for expression, want := range map[string]string{
		`quantity.show("cpu", quantity.quantity("4m"))`:        "0.004",
		`quantity.show("cpu", quantity.quantity("250m"))`:      "0.25",
		`quantity.digits(0)`:                                   "0",
		`quantity.digits(9.999)`:                               "10",
		`quantity.digits(12.34)`:                               "12.3",
		`quantity.digits(99.97)`:                               "100",
		`quantity.digits(1234567)`:                             "1\u202f234\u202f567",
		`quantity.show("memory", quantity.quantity("1536Mi"))`: "1.5 GiB",
		`time.clock("2026-01-01T00:00:05").slice(0, 2)`:        "00",
		`time.duration(125000)`:                                "2 min 5 s",
		`command.inNamespace("")`:                              "",
		`command.inNamespace("shop")`:                          " -n shop",
		`command.quoted("it's")`:                               `'it'\''s'`,
	} {
		if got := evaluate[string](p, expression); got != want {
			t.Errorf("%s is %q, want %q", expression, got, want)
		}
	}
}
