package splice

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var awkward = []string{"", "plain", `quote " and \ backslash`, `\\`, `{"metadata":{"name":"no"}}`, "]}", "line\nbreak", "é ☃ \U0001F600", "<html>&amp;", "\u2028"}

// deployment returns an object with strings that look like structure.
func deployment(t *rapid.T, namespace, name string, source int) appsv1.Deployment {
	text := rapid.SampledFrom(awkward)
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + name), ResourceVersion: strconv.Itoa(1000 + source),
			Labels:        map[string]string{"source": strconv.Itoa(source), "drop": rapid.SampledFrom([]string{"", "yes", "no", "no"}).Draw(t, "drop")},
			Annotations:   map[string]string{"text": text.Draw(t, "text"), text.Draw(t, "key"): "x", "metadata": text.Draw(t, "text")},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:name":{}}}`)}},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(rapid.Int32().Draw(t, "replicas")),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "inner", Namespace: "inner"}},
		},
	}
}

func key(d *appsv1.Deployment) string { return d.Namespace + "/" + d.Name }

// cells draws the objects of some cells, each in key order. Some keys are in several cells.
func cells(t *rapid.T) []deployments {
	result := make([]deployments, rapid.IntRange(1, 4).Draw(t, "cells"))
	for _, namespace := range []string{"a", "a-b", "a.b", "a0", "b"} {
		for _, name := range []string{"x", "x-1", "x.1", "x0"} {
			for i := range result {
				if rapid.IntRange(0, 3).Draw(t, "there") == 0 {
					result[i] = append(result[i], deployment(t, namespace, name, i))
				}
			}
		}
	}
	for _, cell := range result {
		slices.SortFunc(cell, func(a, b appsv1.Deployment) int { return cmp.Compare(key(&a), key(&b)) })
	}
	return result
}

// page returns the answer of an API server: at most limit of its objects after a key.
func page(codec listCodec, source int, items deployments, after string, limit int) []byte {
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(500 + source)}
	items = slices.DeleteFunc(slices.Clone(items), func(d appsv1.Deployment) bool { return key(&d) <= after })
	if limit > 0 && len(items) > limit {
		meta.Continue = "there is more"
		meta.RemainingItemCount = ptr.To(int64(len(items) - limit))
		items = items[:limit]
	}
	return codec.encode(meta, items)
}

// choose selects the object of the last source, or none if it is labelled to be dropped.
func choose(candidates []*Item) int {
	chosen := candidates[len(candidates)-1]
	object, err := chosen.Object()
	if err != nil || object.Key() != chosen.Key() || object.UID != strings.ReplaceAll(object.Key(), "/", "") || object.ResourceVersion == "" {
		return 0
	}
	if object.Label("drop") == "yes" {
		return -1
	}
	return len(candidates) - 1
}

// apart keeps every key in one cell only.
func apart(cells []deployments) []deployments {
	seen := map[string]bool{}
	result := make([]deployments, len(cells))
	for i, cell := range cells {
		for _, object := range cell {
			if !seen[key(&object)] {
				seen[key(&object)] = true
				result[i] = append(result[i], object)
			}
		}
	}
	return result
}

// merged is the model of a merge.
func merged(cells []deployments, choosing bool) deployments {
	byKey := map[string]appsv1.Deployment{}
	for _, cell := range cells {
		for _, object := range cell {
			if _, there := byKey[key(&object)]; !there || choosing {
				byKey[key(&object)] = object
			}
		}
	}
	result := deployments{}
	for _, object := range byKey {
		if !choosing || object.Labels["drop"] != "yes" {
			result = append(result, object)
		}
	}
	slices.SortFunc(result, func(a, b appsv1.Deployment) int { return cmp.Compare(key(&a), key(&b)) })
	return result
}

func TestMergeShowsWhatDecodingWould(t *testing.T) {
	for _, codec := range listCodecs {
		t.Run(codec.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cells := cells(t)
				options := ListOptions{Finish: func(p Page) (Metadata, error) {
					return Metadata{ResourceVersion: strings.Join(p.Versions, "")}, nil
				}}
				choosing := rapid.Bool().Draw(t, "choosing")
				if choosing {
					options.Choose = choose
				} else {
					cells = apart(cells)
				}
				var bodies [][]byte
				for i, cell := range cells {
					bodies = append(bodies, page(codec, i, cell, "", 0))
				}
				var out bytes.Buffer
				p, err := codec.merge(&out, bodies, options)
				if err != nil {
					t.Fatal(err)
				}
				meta, got, err := codec.decode(out.Bytes())
				if err != nil {
					t.Fatalf("%v in %s", err, out.Bytes())
				}
				if want := merged(cells, choosing); !apiequality.Semantic.DeepEqual(got, want) {
					t.Fatal(gocmp.Diff(want, got))
				}
				if want := "500501502503"[:3*len(cells)]; meta.ResourceVersion != want || meta.Continue != "" || meta.RemainingItemCount != nil {
					t.Fatalf("got metadata %+v", meta)
				}
				if p.Items != len(got) || p.More || len(p.Drained) != len(cells) {
					t.Fatalf("got page %+v", p)
				}
			})
		})
	}
}

func TestPagesMakeTheWholeList(t *testing.T) {
	for _, codec := range listCodecs {
		t.Run(codec.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cells := cells(t)
				choosing := rapid.Bool().Draw(t, "choosing")
				if !choosing {
					cells = apart(cells)
				}
				want := merged(cells, choosing)
				limit := rapid.IntRange(1, 6).Draw(t, "limit")
				var got deployments
				after := ""
				for {
					p, items := onePage(t, codec, cells, after, limit, choosing)
					if len(items) > limit {
						t.Fatalf("a page has %d objects", len(items))
					}
					got = append(got, items...)
					if !p.More {
						break
					}
					if p.Last <= after {
						t.Fatalf("a page after %q ends with %q", after, p.Last)
					}
					after = p.Last
				}
				if !apiequality.Semantic.DeepEqual(got, want) && len(got)+len(want) > 0 {
					t.Fatal(gocmp.Diff(want, got))
				}
			})
		})
	}
}

// onePage merges a page, and checks what it reports about the rest.
func onePage(t *rapid.T, codec listCodec, cells []deployments, after string, limit int, choosing bool) (Page, deployments) {
	var bodies [][]byte
	for i, cell := range cells {
		bodies = append(bodies, page(codec, i, cell, after, limit))
	}
	options := ListOptions{Limit: limit, Finish: func(p Page) (Metadata, error) {
		m := Metadata{ResourceVersion: "1", Remaining: p.Remaining}
		if p.More {
			m.Continue = "next"
		}
		return m, nil
	}}
	if choosing {
		options.Choose = choose
	}
	var out bytes.Buffer
	p, err := codec.merge(&out, bodies, options)
	if err != nil {
		t.Fatal(err)
	}
	meta, items, err := codec.decode(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	behind := int64(0)
	var drained []int
	for i, cell := range cells {
		n := int64(len(cell)) - int64(len(slices.DeleteFunc(slices.Clone(cell), func(d appsv1.Deployment) bool { return key(&d) > p.Last })))
		if n == 0 {
			drained = append(drained, i)
		}
		behind += n
	}
	if p.More != (behind > 0) || !slices.Equal(p.Drained, drained) || (p.More && p.Remaining != behind) {
		t.Fatalf("got page %+v with %d objects after it; drained: %v", p, behind, drained)
	}
	if (meta.Continue == "next") != p.More || (p.More && (meta.RemainingItemCount == nil || *meta.RemainingItemCount != behind)) {
		t.Fatalf("got metadata %+v for page %+v", meta, p)
	}
	return p, items
}

func TestObjectsInTwoListsHaveToBeChosenFrom(t *testing.T) {
	for _, codec := range listCodecs {
		items := deployments{{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}}}
		list := codec.encode(metav1.ListMeta{ResourceVersion: "1"}, items)
		var source *SourceError
		if _, err := codec.merge(io.Discard, [][]byte{list, list}, ListOptions{Finish: finishPlain}); !errors.As(err, &source) || source.Source != 1 {
			t.Errorf("%s: got %v", codec.name, err)
		}
	}
}

func TestMergeRefusesBrokenProtobuf(t *testing.T) {
	list := &appsv1.DeploymentList{TypeMeta: deploymentList, Items: deployments{{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "c"}}}}
	good := encodeWith(protoSerializer, list)
	list.Continue = "more"
	paged := encodeWith(protoSerializer, list)
	list.Items[1].Name = "a"
	unordered := encodeWith(protoSerializer, list)
	anywhere := func(candidates []*Item) int { return len(candidates) - 1 }
	for name, test := range map[string]struct {
		broken  []byte
		choose  func([]*Item) int
		options ListOptions
	}{
		"empty":                   {broken: nil},
		"empty, choosing":         {broken: nil, choose: anywhere},
		"JSON":                    {broken: []byte(`{"items":[]}`)},
		"JSON, choosing":          {broken: []byte(`{"items":[]}`), choose: anywhere},
		"cut":                     {broken: good[:len(good)-20]},
		"cut, choosing":           {broken: good[:len(good)-20], choose: anywhere},
		"trailing bytes":          {broken: append(slices.Clone(good), 0x2a, 1, 'x')},
		"encoded once more":       {broken: append(slices.Clone(good), 0x1a, 1, 'x')},
		"encoded, choosing":       {broken: append(slices.Clone(good), 0x1a, 1, 'x'), choose: anywhere},
		"out of order, choosing":  {broken: unordered, choose: anywhere},
		"an unrequested page":     {broken: paged},
		"a list of great length":  {broken: []byte("k8s\x00\x0a\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x0a\x00")},
		"an object of great size": {broken: []byte("k8s\x00\x0a\x00\x12\xff\xff\xff\x7f\x0a\x00\x12\xff\xff\xff\x7f")},
	} {
		test.options.Finish, test.options.Choose = finishPlain, test.choose
		begun := false
		test.options.Begin = func() { begun = true }
		var source *SourceError
		if _, err := MergeProto(io.Discard, inPieces([][]byte{good, test.broken}), test.options); !errors.As(err, &source) || source.Source != 1 || begun {
			t.Errorf("%s: got %v, begun: %v", name, err, begun)
		}
	}
}

func TestRemainingIsUnknownIfASourceDoesNotTell(t *testing.T) {
	list := `{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c"},"items":[{"metadata":{"name":"%s"}}]}`
	var got Page
	_, err := MergeJSON(io.Discard, []io.Reader{strings.NewReader(fmt.Sprintf(list, "a")), strings.NewReader(fmt.Sprintf(list, "b"))}, ListOptions{
		Limit: 1, Finish: func(p Page) (Metadata, error) { got = p; return Metadata{}, nil },
	})
	if err != nil || got.Remaining != -1 || !got.More || got.Last != "a" {
		t.Errorf("got page %+v, %v", got, err)
	}
}

func finishPlain(Page) (Metadata, error) { return Metadata{ResourceVersion: "1"}, nil }

func TestMergeRefusesBrokenLists(t *testing.T) {
	good := `{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`
	for name, broken := range map[string]string{
		"empty":             ``,
		"no list":           `[]`,
		"no items":          `{"kind":"Status"}`,
		"items twice":       `{"items":[],"items":[]}`,
		"items no array":    `{"items":{}}`,
		"cut in an item":    good[:len(good)-30],
		"cut at the end":    good[:len(good)-1],
		"something behind":  good + "x",
		"no name":           `{"items":[{"metadata":{}}]}`,
		"no metadata":       `{"items":[{}]}`,
		"item no object":    `{"items":[1]}`,
		"out of order":      `{"items":[{"metadata":{"name":"b"}},{"metadata":{"name":"a"}}]}`,
		"doubled":           `{"items":[{"metadata":{"name":"b"}},{"metadata":{"name":"b"}}]}`,
		"wrong bracket":     `{"items":[{"metadata":{"name":"b"]}]}`,
		"trailing comma":    `{"items":[{"metadata":{"name":"b"}},]}`,
		"missing comma":     `{"items":[{"metadata":{"name":"b"}}{"metadata":{"name":"c"}}]}`,
		"key is a number":   `{1:2}`,
		"nested too deeply": `{"items":[` + strings.Repeat("[", 20000),
		"bad count":         `{"metadata":{"remainingItemCount":"x"},"items":[]}`,
		"object too large":  `{"items":[{"metadata":{"name":"` + strings.Repeat("x", 1<<17) + `"}}]}`,
		"string never ends": `{"items":[{"metadata":{"name":"` + strings.Repeat(`\"`, 1000),
	} {
		begun := false
		options := ListOptions{Finish: finishPlain, MaxObject: 1 << 16, Begin: func() { begun = true }}
		_, err := MergeJSON(io.Discard, []io.Reader{strings.NewReader(good), strings.NewReader(broken)}, options)
		var source *SourceError
		if !errors.As(err, &source) || source.Source != 1 {
			t.Errorf("%s: got error %v", name, err)
		}
		if begun {
			t.Errorf("%s: there is output despite the error", name)
		}
	}
	if _, err := MergeJSON(io.Discard, nil, ListOptions{Finish: finishPlain}); err == nil {
		t.Error("merging no lists succeeded")
	}
}

func TestMergePassesFailuresOn(t *testing.T) {
	failure := errors.New("broken")
	list := func() []io.Reader { return []io.Reader{strings.NewReader(`{"items":[{"metadata":{"name":"a"}}]}`)} }
	if _, err := MergeJSON(io.Discard, list(), ListOptions{Finish: func(Page) (Metadata, error) { return Metadata{}, failure }}); !errors.Is(err, failure) {
		t.Errorf("Finish's error became %v", err)
	}
	if _, err := MergeJSON(failingWriter{failure}, list(), ListOptions{Finish: finishPlain}); !errors.Is(err, failure) {
		t.Errorf("the writer's error became %v", err)
	}
	half := io.MultiReader(strings.NewReader(`{"items":[`), failingReader{failure})
	if _, err := MergeJSON(io.Discard, []io.Reader{half}, ListOptions{Finish: finishPlain}); !errors.Is(err, failure) {
		t.Errorf("the reader's error became %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestNullItemsAreNone(t *testing.T) {
	var out strings.Builder
	_, err := MergeJSON(&out, []io.Reader{strings.NewReader(`{"kind":"L","items":null,"apiVersion":"v1","metadata":{"resourceVersion":"7"}}`)}, ListOptions{Finish: finishPlain})
	if want := `{"kind":"L","apiVersion":"v1","items":[],"metadata":{"resourceVersion":"1"}}` + "\n"; err != nil || out.String() != want {
		t.Errorf("got %s, %v; want %s", out.String(), err, want)
	}
}

func TestTables(t *testing.T) {
	row := func(cells, name string) string {
		return `{"cells":[` + cells + `],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"` + name + `","namespace":"n"}}}`
	}
	table := func(columns string, rows ...string) io.Reader {
		var definitions []string
		for column := range strings.FieldsSeq(columns) {
			definitions = append(definitions, `{"name":"`+column+`"}`)
		}
		return strings.NewReader(`{"kind":"Table","metadata":{"resourceVersion":"3"},"columnDefinitions":[` + strings.Join(definitions, ",") + `],"rows":[` + strings.Join(rows, ",") + `]}`)
	}
	var out strings.Builder
	_, err := MergeTables(&out, []io.Reader{
		table("Name Ready Age", row(`"a","1/1",[1,2]`, "a"), row(`"d",2,3`, "d")),
		table("Age New Name", row(`"9d","new","b"`, "b"), row(`"8d"`, "c")),
	}, TableOptions{ListOptions: ListOptions{Finish: finishPlain}, OmitObjects: true})
	want := `{"kind":"Table","columnDefinitions":[{"name":"Name"},{"name":"Ready"},{"name":"Age"}],"rows":[` +
		`{"cells":["a","1/1",[1,2]],"object":null},{"cells":["b",null,"9d"],"object":null},{"cells":[null,null,"8d"],"object":null},{"cells":["d",2,3],"object":null}` +
		`],"metadata":{"resourceVersion":"1"}}` + "\n"
	if err != nil || out.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, out.String(), want)
	}
	for name, broken := range map[string]string{
		"no object":     `{"columnDefinitions":[],"rows":[{"cells":[],"object":null}]}`,
		"no columns":    `{"rows":[]}`,
		"columns late":  `{"rows":[` + row("", "a") + `],"columnDefinitions":[]}`,
		"nameless ones": `{"columnDefinitions":[{}],"rows":[]}`,
	} {
		if _, err := MergeTables(io.Discard, []io.Reader{strings.NewReader(broken)}, TableOptions{ListOptions: ListOptions{Finish: finishPlain}}); err == nil {
			t.Errorf("%s: merging the Table succeeded", name)
		}
	}
}

func TestMergePartialObjectMetadata(t *testing.T) {
	item := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"x": "y"}}}
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, Items: []metav1.PartialObjectMetadata{item}}
	other := list.DeepCopy()
	other.Items[0].Name = "a"
	var asJSON, asProto bytes.Buffer
	if _, err := mergeInPieces(&asJSON, [][]byte{encodeWith(jsonSerializer, list), encodeWith(jsonSerializer, other)}, ListOptions{Finish: finishPlain}); err != nil {
		t.Fatal(err)
	}
	if _, err := MergeProto(&asProto, inPieces([][]byte{encodeWith(protoSerializer, list), encodeWith(protoSerializer, other)}), ListOptions{Finish: finishPlain}); err != nil {
		t.Fatal(err)
	}
	for _, decoded := range []func() (any, error){
		func() (any, error) { o, _, err := jsonSerializer.Decode(asJSON.Bytes(), nil, nil); return o, err },
		func() (any, error) { o, _, err := protoSerializer.Decode(asProto.Bytes(), nil, nil); return o, err },
	} {
		object, err := decoded()
		if err != nil {
			t.Fatal(err)
		}
		got := object.(*metav1.PartialObjectMetadataList)
		if len(got.Items) != 2 || got.Items[0].Name != "a" || got.Items[1].Name != "b" || got.Items[1].Labels["x"] != "y" || got.ResourceVersion != "1" {
			t.Errorf("got %+v", got)
		}
	}
}

func FuzzMergeJSON(f *testing.F) {
	f.Add([]byte(`{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":3},"items":[{"metadata":{"name":"a","namespace":"n\u0041"}}]}`),
		[]byte(`{"apiVersion":"v1","items":[{"metadata":{"labels":{"a\"":"{["},"name":"b"}, "x":[1,2.5e3,null,true]}],"kind":"L","metadata":{}}`), 0)
	f.Add([]byte(`{"items":null}`), []byte(`{"items":[]}`), 1)
	f.Fuzz(func(t *testing.T, a, b []byte, limit int) {
		var out bytes.Buffer
		options := ListOptions{Limit: limit, MaxObject: 1 << 16, Finish: finishPlain, Choose: func(c []*Item) int {
			if _, err := c[0].Object(); err != nil {
				return -1
			}
			return 0
		}}
		p, err := MergeJSON(&out, []io.Reader{bytes.NewReader(a), bytes.NewReader(b)}, options)
		if err != nil || !json.Valid(a) || !json.Valid(b) {
			return
		}
		if !json.Valid(out.Bytes()) {
			t.Fatalf("valid lists became %q", out.Bytes())
		}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(out.Bytes(), &list); err != nil || len(list.Items) != p.Items {
			t.Fatalf("%v; %d items, the page reports %d", err, len(list.Items), p.Items)
		}
	})
}

func FuzzMergeTables(f *testing.F) {
	f.Add([]byte(`{"columnDefinitions":[{"name":"A"}],"rows":[{"cells":["x"],"object":{"metadata":{"name":"a"}}}]}`),
		[]byte(`{"columnDefinitions":[{"name":"B"},{"name":"A"}],"rows":[{"cells":["x",1],"object":{"metadata":{"name":"b"}}}],"metadata":{}}`), true)
	f.Fuzz(func(t *testing.T, a, b []byte, omit bool) {
		var out bytes.Buffer
		_, err := MergeTables(&out, []io.Reader{bytes.NewReader(a), bytes.NewReader(b)}, TableOptions{ListOptions: ListOptions{Finish: finishPlain, MaxObject: 1 << 16}, OmitObjects: omit})
		if err == nil && json.Valid(a) && json.Valid(b) && !json.Valid(out.Bytes()) {
			t.Fatalf("valid Tables became %q", out.Bytes())
		}
	})
}

func FuzzMergeProto(f *testing.F) {
	seed := func(names ...string) []byte {
		list := &appsv1.DeploymentList{TypeMeta: deploymentList, ListMeta: metav1.ListMeta{ResourceVersion: "3"}}
		for _, name := range names {
			list.Items = append(list.Items, appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", Labels: map[string]string{"a": "b"}}})
		}
		return encodeWith(protoSerializer, list)
	}
	f.Add(seed("a", "b"), seed("c"))
	f.Add(seed(), seed("c"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var out bytes.Buffer
		p, err := MergeProto(&out, inPieces([][]byte{a, b}), ListOptions{Finish: finishPlain, Choose: func(c []*Item) int {
			if object, err := c[0].Object(); err != nil || object.Label("x") == "y" {
				return -1
			}
			return 0
		}})
		if err != nil {
			return
		}
		var streamed bytes.Buffer
		all, err := MergeProto(&streamed, inPieces([][]byte{a, b}), ListOptions{Finish: finishPlain})
		if err == nil && all.Items == p.Items && !bytes.Equal(streamed.Bytes(), out.Bytes()) {
			t.Fatalf("streamed %q, in memory %q", streamed.Bytes(), out.Bytes())
		}
		again, err := MergeProto(io.Discard, inPieces([][]byte{out.Bytes()}), ListOptions{Finish: finishPlain})
		if err != nil || again.Items != p.Items {
			t.Fatalf("the merged list has %d items when read again, not %d (%v)", again.Items, p.Items, err)
		}
	})
}
