package jsoncut_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/jsoncut"
)

// members cuts an object and decodes what it finds.
func members(t interface{ Fatalf(string, ...any) }, b []byte) (map[string]any, int) {
	found, first, last := map[string]any{}, 0, 0
	end, err := jsoncut.Each(b, 0, func(m jsoncut.Member) bool {
		key, err := jsoncut.Text(b[m.Whole.Start : m.Whole.Start+len(m.Key)+2])
		if err != nil {
			t.Fatalf("the key %q: %v", m.Key, err)
		}
		var value any
		if err := json.Unmarshal(m.Value.Of(b), &value); err != nil {
			t.Fatalf("the value of %q: %v", key, err)
		}
		if whole := m.Whole.Of(b); whole[0] != '"' || m.Whole.End != m.Value.End {
			t.Fatalf("%q is not from its key to its value", whole)
		}
		if m.First {
			first++
		}
		if m.Last {
			last++
		}
		found[key] = value
		return true
	})
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if want := min(len(found), 1); first != want || last != want {
		t.Fatalf("%d members are the first, %d the last of %s", first, last, b)
	}
	return found, end
}

func TestEachFindsWhatDecodingFinds(t *testing.T) {
	text := rapid.StringOf(rapid.RuneFrom([]rune("ab{}[]\",:\\ \n\u00e4\u2028")))
	rapid.Check(t, func(t *rapid.T) {
		var value func(depth int) any
		value = func(depth int) any {
			switch n := rapid.IntRange(0, 5).Draw(t, "kind"); {
			case n == 0 && depth < 3:
				object := map[string]any{}
				for _, key := range rapid.SliceOfN(text, 0, 4).Draw(t, "keys") {
					object[key] = value(depth + 1)
				}
				return object
			case n == 1 && depth < 3:
				list := []any{}
				for range rapid.IntRange(0, 3).Draw(t, "length") {
					list = append(list, value(depth+1))
				}
				return list
			case n == 2:
				return rapid.Float64Range(-1e6, 1e6).Draw(t, "number")
			case n == 3:
				return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "word")
			default:
				return text.Draw(t, "text")
			}
		}
		want := map[string]any{}
		for _, key := range rapid.SliceOfN(text, 0, 5).Draw(t, "keys") {
			want[key] = value(0)
		}
		b, err := json.Marshal(want)
		if rapid.Bool().Draw(t, "spread out") {
			b, err = json.MarshalIndent(want, "", "\t")
		}
		if err != nil {
			t.Fatal(err)
		}
		got, end := members(t, append(b, " behind"...))
		if !reflect.DeepEqual(got, want) || end != len(b) {
			t.Fatalf("found %v up to %d in %s", got, end, b)
		}
	})
}

func TestEachStops(t *testing.T) {
	var keys []string
	end, err := jsoncut.Each([]byte(`{"a":1,"b":2,"c":`), 0, func(m jsoncut.Member) bool {
		keys = append(keys, string(m.Key))
		return len(keys) < 2
	})
	if want := len(`{"a":1,"b":2,`); err != nil || end != want || !maps.Equal(map[string]bool{keys[0]: true, keys[1]: true}, map[string]bool{"a": true, "b": true}) {
		t.Errorf("%v up to %d, want %d: %v", keys, end, want, err)
	}
}

func TestMalformed(t *testing.T) {
	for _, text := range []string{``, ` `, `[`, `"a"`, `{`, `{"a`, `{"a"`, `{"a"}`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":"1`, `{"a":[}`, `{"a":{"b":1}`, `{"a":1;"b":2}`, `{a:1}`, `{,}`, `{"a":1,}`, `{"a":1 2}`, `{"a\`, `{"a":"\`} {
		if end, err := jsoncut.Each([]byte(text), 0, func(jsoncut.Member) bool { return true }); !errors.Is(err, jsoncut.ErrMalformed) {
			t.Errorf("%s: %v, up to %d", text, err, end)
		}
	}
	for _, text := range []string{``, `"`, `1`, `null`, `"\x"`} {
		if got, err := jsoncut.Text([]byte(text)); err == nil {
			t.Errorf("%s is the text %q", text, got)
		}
	}
	if got, err := jsoncut.Text([]byte(`"a\"b"`)); err != nil || got != `a"b` {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzEach(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a"},"spec":[{"b":"}"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := jsoncut.Each(b, 0, func(m jsoncut.Member) bool {
			if m.Whole.Start < 0 || m.Value.Start < m.Whole.Start || m.Value.End > len(b) || m.Value.Start >= m.Value.End {
				t.Fatalf("%+v of %q", m, b)
			}
			return true
		})
		if err == nil && (end <= 0 || end > len(b)) {
			t.Fatalf("%q ends at %d", b, end)
		}
		if json.Valid(b) && err != nil && jsoncut.SkipSpace(b, 0) < len(b) && b[jsoncut.SkipSpace(b, 0)] == '{' {
			t.Fatalf("%q: %v", b, err)
		}
	})
}
