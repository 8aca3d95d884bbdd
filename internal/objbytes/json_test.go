package objbytes_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// members splits an object into members and decodes them.
func members(t interface{ Fatalf(string, ...any) }, b []byte) (map[string]any, int) {
	found, first, last := map[string]any{}, 0, 0
	end, err := objbytes.EachMember(b, 0, func(m objbytes.Member) error {
		var value any
		if err := json.Unmarshal(m.Value.Of(b), &value); err != nil {
			t.Fatalf("the value of %q: %v", m.Key, err)
		}
		if whole := m.Whole.Of(b); whole[0] != '"' || m.Whole.End != m.Value.End {
			t.Fatalf("%q is not a member from its key to its value", whole)
		}
		if m.First {
			first++
		}
		if m.Last {
			last++
		}
		found[string(m.Key)] = value
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if want := min(len(found), 1); first != want || last != want {
		t.Fatalf("%s: %d members are the first, %d the last", b, first, last)
	}
	return found, end
}

func TestEachMemberFindsWhatADecoderFinds(t *testing.T) {
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
		if rapid.Bool().Draw(t, "indented") {
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

func TestEachMemberStops(t *testing.T) {
	var keys []string
	end, err := objbytes.EachMember([]byte(`{"a":1,"b":2,"c":`), 0, func(m objbytes.Member) error {
		if keys = append(keys, string(m.Key)); len(keys) == 2 {
			return objbytes.ErrStop
		}
		return nil
	})
	if want := len(`{"a":1,"b":2,`); err != nil || end != want || !slices.Equal(keys, []string{"a", "b"}) {
		t.Errorf("found %v up to %d, want %d: %v", keys, end, want, err)
	}
}

func TestMalformedJSON(t *testing.T) {
	for _, text := range []string{
		``, ` `, `[`, `"a"`, `{`, `{"a`, `{"a"`, `{"a"}`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":"1`, `{"a":[}`, `{"a":{"b":1}`, `{"a":1;"b":2}`, `{a:1}`, `{,}`,
		`{"a":1,}`, `{"a":1 2}`, `{"a\`, `{"a":"\`, `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	} {
		if end, err := objbytes.EachMember([]byte(text), 0, func(objbytes.Member) error { return nil }); !errors.Is(err, objbytes.ErrMalformed) {
			t.Errorf("%.60s: %v, up to %d", text, err, end)
		}
	}
	for _, text := range []string{``, `"`, `1`, `null`, `"\x"`} {
		if got, err := objbytes.String([]byte(text)); err == nil {
			t.Errorf("%s is read as the string %q", text, got)
		}
	}
	for quoted, want := range map[string]string{`"a\"b"`: `a"b`, "\"a\xffb\"": "a\ufffdb", `"\ud800"`: "\ufffd"} {
		if got, err := objbytes.String([]byte(quoted)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", quoted, got, err)
		}
	}
}

func FuzzEachMember(f *testing.F) {
	for _, seed := range hostileJSON {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := objbytes.EachMember(b, 0, func(m objbytes.Member) error {
			if m.Whole.Start < 0 || m.Value.Start < m.Whole.Start || m.Value.End > len(b) || m.Value.Start >= m.Value.End {
				t.Fatalf("%+v of %q", m, b)
			}
			return nil
		})
		if err == nil && (end <= 0 || end > len(b)) {
			t.Fatalf("%q ends at %d", b, end)
		}
		if at := objbytes.SkipSpace(b, 0); err != nil && at < len(b) && b[at] == '{' && json.Valid(b) {
			t.Fatalf("%q: %v", b, err)
		}
	})
}
