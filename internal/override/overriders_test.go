package override_test

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/override"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: ns, labels: {app: web}}
spec:
  replicas: 2
  template:
    spec:
      initContainers: [{name: init, image: "init:v1"}]
      containers:
      - {name: app, image: "registry.example:5000/team/app:v1", command: [run], args: [-a, -b, -a]}
      - {name: side, image: nginx}
`

func apply(t testing.TB, manifest string, overriders policyv1alpha1.Overriders) (*unstructured.Unstructured, error) {
	t.Helper()
	policy := override.CompileCluster(&policyv1alpha1.ClusterOverridePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       policyv1alpha1.OverrideSpec{OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: overriders}}},
	})
	result, _, err := override.NewSet(policy).Apply(object(t, manifest), member)
	return result, err
}

// O3: every component with every operator, on every form of image name.
func TestImageComponents(t *testing.T) {
	const digest = "sha256:50d858e0985ecc7f60418aaf0cc5ab587f42c2570a884095a9e8ccacd0f6545c"
	const other = "sha256:aaaabbbbccccddddaaaabbbbccccddddaaaabbbbccccddddaaaabbbbccccdddd"
	for _, tt := range []struct {
		image     string
		component policyv1alpha1.ImageComponent
		operator  policyv1alpha1.OverriderOperator
		value     string
		want      string // "" for an error
	}{
		{"nginx", "Registry", "add", "mirror.example", "mirror.example/nginx"},
		{"nginx:1", "Registry", "replace", "mirror.example:5000", "mirror.example:5000/nginx:1"},
		{"library/nginx:1", "Registry", "replace", "mirror.example", "mirror.example/library/nginx:1"},
		{"quay.io/a/b:1", "Registry", "replace", "mirror.example", "mirror.example/a/b:1"},
		{"localhost/a", "Registry", "replace", "mirror.example", "mirror.example/a"},
		{"host:5000/a/b", "Registry", "replace", "mirror.example", "mirror.example/a/b"},
		{"quay.io/a:1", "Registry", "add", ".internal", "quay.io.internal/a:1"},
		{"quay.io/a:1", "Registry", "add", ":8443", "quay.io:8443/a:1"},
		{"host:5000/a:1@" + digest, "Registry", "remove", "", "a:1@" + digest},
		{"nginx", "Registry", "remove", "", "nginx"},
		{"quay.io/a:1@" + digest, "Registry", "replace", "mirror.example", "mirror.example/a:1@" + digest},
		{"quay.io/a", "Registry", "replace", "not a host", ""},

		{"quay.io/a/b:1", "Repository", "replace", "c/d", "quay.io/c/d:1"},
		{"quay.io/a/b@" + digest, "Repository", "replace", "c", "quay.io/c@" + digest},
		{"quay.io/a:1", "Repository", "add", "-arm64", "quay.io/a-arm64:1"},
		{"quay.io/a:1", "Repository", "add", "/b", "quay.io/a/b:1"},
		{"nginx", "Repository", "replace", "apache", "apache"},
		{"quay.io/a:1", "Repository", "remove", "", ""},
		{"quay.io/a:1", "Repository", "replace", "UPPER", ""},

		{"nginx", "Tag", "add", "1", "nginx:1"},
		{"nginx:1", "Tag", "add", "-slim", "nginx:1-slim"},
		{"nginx:1", "Tag", "replace", "2", "nginx:2"},
		{"host:5000/nginx", "Tag", "replace", "2", "host:5000/nginx:2"},
		{"nginx:1", "Tag", "remove", "", "nginx"},
		{"nginx@" + digest, "Tag", "remove", "", "nginx"},
		{"nginx@" + digest, "Tag", "replace", "2", "nginx:2"},
		{"nginx:1", "Tag", "replace", digest, "nginx@" + digest},
		{"nginx@" + digest, "Tag", "replace", other, "nginx@" + other},
		{"nginx:1@" + digest, "Tag", "replace", "2", "nginx:2"},
		{"nginx:1@" + digest, "Tag", "remove", "", "nginx"},
		{"nginx:1", "Tag", "add", digest, ""},
		{"nginx:1", "Tag", "replace", "not a tag", ""},
		{"nginx:1", "Tag", "replace", "sha256:short", ""},
		{"NOT an image", "Tag", "replace", "2", ""},
	} {
		name := strings.Join([]string{tt.image, string(tt.component), string(tt.operator), tt.value}, " ")
		t.Run(name, func(t *testing.T) {
			result, err := apply(t, "apiVersion: v1\nkind: Any\nmetadata: {name: n}\nimage: '"+tt.image+"'", policyv1alpha1.Overriders{
				ImageOverrider: []policyv1alpha1.ImageOverrider{{
					Predicate: &policyv1alpha1.ImagePredicate{Path: "/image"}, Component: tt.component, Operator: tt.operator, Value: tt.value,
				}},
			})
			if (err != nil) != (tt.want == "") {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if err != nil {
				return
			}
			if got := result.Object["image"]; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// O3: which images are changed.
func TestImageOverriderReach(t *testing.T) {
	pod := "{containers: [{name: a, image: a}, {name: b, image: b}, {name: none}], initContainers: [{name: i, image: i}]}"
	templated := func(apiVersion, kind string) string {
		return "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {name: n}, spec: {template: {spec: " + pod + "}}}"
	}
	const changed, untouched = "a:t b:t i", "a b i"
	for name, tt := range map[string]struct{ manifest, predicate, want string }{
		"Pod":         {"{apiVersion: v1, kind: Pod, metadata: {name: n}, spec: " + pod + "}", "", changed},
		"Deployment":  {templated("apps/v1", "Deployment"), "", changed},
		"ReplicaSet":  {templated("apps/v1", "ReplicaSet"), "", changed},
		"StatefulSet": {templated("apps/v1", "StatefulSet"), "", changed},
		"DaemonSet":   {templated("apps/v1", "DaemonSet"), "", changed},
		"Job":         {templated("batch/v1", "Job"), "", changed},
		"other kinds": {templated("x/v1", "Rollout"), "", untouched},
		"predicate":   {templated("x/v1", "Rollout"), "/spec/template/spec/initContainers/0/image", "a b i:t"},
	} {
		t.Run(name, func(t *testing.T) {
			overrider := policyv1alpha1.ImageOverrider{Component: "Tag", Operator: "replace", Value: "t"}
			if tt.predicate != "" {
				overrider.Predicate = &policyv1alpha1.ImagePredicate{Path: tt.predicate}
			}
			result, err := apply(t, tt.manifest, policyv1alpha1.Overriders{ImageOverrider: []policyv1alpha1.ImageOverrider{overrider}})
			if err != nil {
				t.Fatal(err)
			}
			spec := result.Object["spec"].(map[string]any)
			if template, ok := spec["template"].(map[string]any); ok {
				spec = template["spec"].(map[string]any)
			}
			var images []string
			for _, field := range []string{"containers", "initContainers"} {
				for _, container := range spec[field].([]any) {
					if image, ok := container.(map[string]any)["image"].(string); ok {
						images = append(images, image)
					}
				}
			}
			if got := strings.Join(images, " "); got != tt.want {
				t.Errorf("images are %q, want %q", got, tt.want)
			}
		})
	}
	for name, path := range map[string]string{"missing": "/spec/nowhere", "not a string": "/spec/replicas", "no index": "/spec/template/spec/containers/x/image"} {
		t.Run("predicate "+name, func(t *testing.T) {
			_, err := apply(t, deployment, policyv1alpha1.Overriders{ImageOverrider: []policyv1alpha1.ImageOverrider{
				{Predicate: &policyv1alpha1.ImagePredicate{Path: path}, Component: "Tag", Operator: "replace", Value: "t"},
			}})
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want an error that names %s", err, path)
			}
		})
	}
}

// O4: command and args of the named container.
func TestCommandAndArgs(t *testing.T) {
	words := func(container string, operator policyv1alpha1.OverriderOperator, value ...string) []policyv1alpha1.CommandArgsOverrider {
		return []policyv1alpha1.CommandArgsOverrider{{ContainerName: container, Operator: operator, Value: value}}
	}
	for name, tt := range map[string]struct {
		overriders policyv1alpha1.Overriders
		app, side  string
	}{
		"add args":            {policyv1alpha1.Overriders{ArgsOverrider: words("app", "add", "-c", "-d")}, "run|-a -b -a -c -d", "|"},
		"remove args":         {policyv1alpha1.Overriders{ArgsOverrider: words("app", "remove", "-a", "-x")}, "run|-b", "|"},
		"remove all args":     {policyv1alpha1.Overriders{ArgsOverrider: words("app", "remove", "-a", "-b")}, "run|", "|"},
		"add where none were": {policyv1alpha1.Overriders{ArgsOverrider: words("side", "add", "-z")}, "run|-a -b -a", "|-z"},
		"remove from nothing": {policyv1alpha1.Overriders{CommandOverrider: words("side", "remove", "-z")}, "run|-a -b -a", "|"},
		"command":             {policyv1alpha1.Overriders{CommandOverrider: words("app", "add", "now")}, "run now|-a -b -a", "|"},
		"unknown container":   {policyv1alpha1.Overriders{CommandOverrider: words("x", "add", "now")}, "run|-a -b -a", "|"},
		"both": {
			policyv1alpha1.Overriders{CommandOverrider: words("app", "remove", "run"), ArgsOverrider: words("app", "remove", "-b")}, "|-a -a", "|",
		},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := apply(t, deployment, tt.overriders)
			if err != nil {
				t.Fatal(err)
			}
			containers, _, _ := unstructured.NestedSlice(result.Object, "spec", "template", "spec", "containers")
			for i, want := range []string{tt.app, tt.side} {
				container := containers[i].(map[string]any)
				command, _, _ := unstructured.NestedStringSlice(container, "command")
				args, _, _ := unstructured.NestedStringSlice(container, "args")
				if got := strings.Join(command, " ") + "|" + strings.Join(args, " "); got != want {
					t.Errorf("%s runs %q, want %q", container["name"], got, want)
				}
			}
		})
	}
	if _, err := apply(t, deployment, policyv1alpha1.Overriders{ArgsOverrider: words("app", "replace", "x")}); err == nil {
		t.Error("replace is not an operator of args, but nothing failed")
	}
}

// O5: labels and annotations.
func TestLabelsAndAnnotations(t *testing.T) {
	manifest := "apiVersion: v1\nkind: X\nmetadata: {name: n, labels: {a: '1', x.io/b: '2'}}"
	change := func(operator policyv1alpha1.OverriderOperator, keysAndValues ...string) []policyv1alpha1.LabelAnnotationOverrider {
		value := map[string]string{}
		for i := 0; i < len(keysAndValues); i += 2 {
			value[keysAndValues[i]] = keysAndValues[i+1]
		}
		return []policyv1alpha1.LabelAnnotationOverrider{{Operator: operator, Value: value}}
	}
	for name, tt := range map[string]struct {
		overriders  policyv1alpha1.Overriders
		labels      map[string]string
		annotations map[string]string
	}{
		"add":                     {policyv1alpha1.Overriders{LabelsOverrider: change("add", "c", "3")}, map[string]string{"a": "1", "x.io/b": "2", "c": "3"}, nil},
		"add overwrites":          {policyv1alpha1.Overriders{LabelsOverrider: change("add", "x.io/b", "9")}, map[string]string{"a": "1", "x.io/b": "9"}, nil},
		"replace":                 {policyv1alpha1.Overriders{LabelsOverrider: change("replace", "x.io/b", "9")}, map[string]string{"a": "1", "x.io/b": "9"}, nil},
		"replace only if present": {policyv1alpha1.Overriders{LabelsOverrider: change("replace", "c", "9")}, map[string]string{"a": "1", "x.io/b": "2"}, nil},
		"remove":                  {policyv1alpha1.Overriders{LabelsOverrider: change("remove", "x.io/b", "", "c", "")}, map[string]string{"a": "1"}, nil},
		"annotations from none":   {policyv1alpha1.Overriders{AnnotationsOverrider: change("add", "x.io/k", "v")}, map[string]string{"a": "1", "x.io/b": "2"}, map[string]string{"x.io/k": "v"}},
		"annotations remove none": {policyv1alpha1.Overriders{AnnotationsOverrider: change("remove", "x.io/k", "v")}, map[string]string{"a": "1", "x.io/b": "2"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := apply(t, manifest, tt.overriders)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.labels, result.GetLabels()); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.annotations, result.GetAnnotations()); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

// O6: documents held in a string.
func TestFieldOverrider(t *testing.T) {
	value := func(text string) apiextensionsv1.JSON { return apiextensionsv1.JSON{Raw: []byte(text)} }
	manifest := `
apiVersion: v1
kind: ConfigMap
metadata: {name: n}
data:
  conf.json: '{"z": {"b": [1, 2]}, "a": 12345678901234567890, "s": "x"}'
  conf.yaml: |
    z:
      b: [1, 2]
    a: text
  two.yaml: |
    a: 1
    ---
    b: 2
  broken: '{'
`
	for name, tt := range map[string]struct {
		overrider policyv1alpha1.FieldOverrider
		want      string // an error if it starts with "!"
	}{
		"json": {
			policyv1alpha1.FieldOverrider{FieldPath: "/data/conf.json", JSON: []policyv1alpha1.JSONPatchOperation{
				{SubPath: "/z/b/-", Operator: "add", Value: value("3")},
				{SubPath: "/s", Operator: "replace", Value: value(`{"n": null}`)},
			}},
			`{"z":{"b":[1,2,3]},"a":12345678901234567890,"s":{"n":null}}`,
		},
		"json remove": {
			policyv1alpha1.FieldOverrider{FieldPath: "/data/conf.json", JSON: []policyv1alpha1.JSONPatchOperation{{SubPath: "/z", Operator: "remove"}}},
			`{"a":12345678901234567890,"s":"x"}`,
		},
		"yaml": {
			policyv1alpha1.FieldOverrider{FieldPath: "/data/conf.yaml", YAML: []policyv1alpha1.YAMLPatchOperation{
				{SubPath: "/z/b/0", Operator: "remove"},
				{SubPath: "/n~1m", Operator: "add", Value: value(`"new"`)},
				{SubPath: "/a", Operator: "replace", Value: value(`"other"`)},
			}},
			"a: other\nn/m: new\nz:\n  b:\n  - 2\n",
		},
		"no operations":    {policyv1alpha1.FieldOverrider{FieldPath: "/data/broken"}, "{"},
		"missing sub path": {policyv1alpha1.FieldOverrider{FieldPath: "/data/conf.json", JSON: []policyv1alpha1.JSONPatchOperation{{SubPath: "/q", Operator: "remove"}}}, "!/q"},
		"missing field":    {policyv1alpha1.FieldOverrider{FieldPath: "/data/x", JSON: []policyv1alpha1.JSONPatchOperation{{SubPath: "/q", Operator: "remove"}}}, "!/data/x"},
		"no json":          {policyv1alpha1.FieldOverrider{FieldPath: "/data/broken", JSON: []policyv1alpha1.JSONPatchOperation{{SubPath: "/q", Operator: "remove"}}}, "!no JSON document"},
		"no yaml":          {policyv1alpha1.FieldOverrider{FieldPath: "/data/broken", YAML: []policyv1alpha1.YAMLPatchOperation{{SubPath: "/q", Operator: "remove"}}}, "!no YAML document"},
		"several yaml":     {policyv1alpha1.FieldOverrider{FieldPath: "/data/two.yaml", YAML: []policyv1alpha1.YAMLPatchOperation{{SubPath: "/a", Operator: "remove"}}}, "!several YAML documents"},
		"unknown operator": {policyv1alpha1.FieldOverrider{FieldPath: "/data/conf.json", JSON: []policyv1alpha1.JSONPatchOperation{{SubPath: "/a", Operator: "move"}}}, "!unknown operator"},
		"json and yaml": {
			policyv1alpha1.FieldOverrider{
				FieldPath: "/data/conf.json", JSON: []policyv1alpha1.JSONPatchOperation{{SubPath: "/a", Operator: "remove"}},
				YAML: []policyv1alpha1.YAMLPatchOperation{{SubPath: "/a", Operator: "remove"}},
			}, "!either json or yaml",
		},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := apply(t, manifest, policyv1alpha1.Overriders{FieldOverrider: []policyv1alpha1.FieldOverrider{tt.overrider}})
			if want, isError := strings.CutPrefix(tt.want, "!"); isError {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _, _ := unstructured.NestedString(result.Object, "data", strings.TrimPrefix(tt.overrider.FieldPath, "/data/"))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// O7: RFC 6902.
func TestPlaintext(t *testing.T) {
	const manifest = `{"apiVersion":"v1","kind":"X","metadata":{"name":"n"},"l":[1,2,3],"m":{"a/b":1,"t~d":2,"n":null},"":{"":0}}`
	for name, tt := range map[string]struct {
		path     string
		operator policyv1alpha1.OverriderOperator
		value    string
		want     string // an error if empty
	}{
		"add field":                {"/x", "add", `{"y":1}`, `"x":{"y":1}`},
		"add overwrites":           {"/m/a~1b", "add", "7", `"a/b":7`},
		"add null without a value": {"/x", "add", "", `"x":null`},
		"add at index":             {"/l/1", "add", "9", `[1,9,2,3]`},
		"add at end by index":      {"/l/3", "add", "9", `[1,2,3,9]`},
		"append":                   {"/l/-", "add", "9", `[1,2,3,9]`},
		"add beyond the end":       {"/l/4", "add", "9", ""},
		"add below a missing one":  {"/x/y", "add", "9", ""},
		"add below a plain value":  {"/kind/y", "add", "9", ""},
		"add below null":           {"/m/n/y", "add", "9", ""},
		"replace":                  {"/m/t~0d", "replace", `"v"`, `"t~d":"v"`},
		"replace index":            {"/l/0", "replace", "9", `[9,2,3]`},
		"replace last":             {"/l/-1", "replace", "9", `[1,2,9]`},
		"replace missing":          {"/x", "replace", "9", ""},
		"replace beyond the end":   {"/l/3", "replace", "9", ""},
		"replace after the end":    {"/l/-", "replace", "9", ""},
		"remove":                   {"/m/a~1b", "remove", "", `"m":{"n":null,"t~d":2}`},
		"remove index":             {"/l/1", "remove", "", `[1,3]`},
		"remove missing":           {"/x", "remove", "", ""},
		"remove missing index":     {"/l/3", "remove", "", ""},
		"empty names":              {"//", "replace", "5", `"":{"":5}`},
		"index with zero":          {"/l/01", "replace", "5", ""},
		"index with sign":          {"/l/+1", "replace", "5", ""},
		"root":                     {"", "replace", "{}", ""},
		"relative":                 {"m", "remove", "", ""},
		"bad escape":               {"/m/t~d", "remove", "", ""},
		"bad value":                {"/m", "replace", "{", ""},
		"unknown operator":         {"/m", "move", "1", ""},
		"whole numbers stay whole": {"/x", "add", "10000000000", `"x":10000000000`},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{}
			if err := obj.UnmarshalJSON([]byte(manifest)); err != nil {
				t.Fatal(err)
			}
			policy := override.CompileCluster(&policyv1alpha1.ClusterOverridePolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Spec: policyv1alpha1.OverrideSpec{Overriders: policyv1alpha1.Overriders{Plaintext: []policyv1alpha1.PlaintextOverrider{
					{Path: tt.path, Operator: tt.operator, Value: apiextensionsv1.JSON{Raw: []byte(tt.value)}},
				}}},
			})
			result, _, err := override.NewSet(policy).Apply(obj, member)
			if (err != nil) != (tt.want == "") {
				t.Fatalf("got error %v, want %q", err, tt.want)
			}
			if err != nil {
				return
			}
			if text, _ := result.MarshalJSON(); !strings.Contains(string(text), tt.want) {
				t.Errorf("got %s, want it to contain %s", text, tt.want)
			}
		})
	}
}

// O7: whatever the document and the operations, the outcome is that of the reference implementation.
func TestPlaintextAgreesWithJSONPatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := map[string]any{
			"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": "n"}, "d": drawValue(t, 3),
		}
		before, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		var overriders []policyv1alpha1.PlaintextOverrider
		var steps []map[string]any
		for range rapid.IntRange(1, 3).Draw(t, "steps") {
			path := "/d" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"/a", "/b", "/0", "/1", "/-", "/x~1y", "/z~0"}), 0, 3).Draw(t, "path"), "")
			operator := rapid.SampledFrom([]policyv1alpha1.OverriderOperator{"add", "replace", "remove"}).Draw(t, "op")
			value, err := json.Marshal(drawValue(t, 1))
			if err != nil {
				t.Fatal(err)
			}
			overriders = append(overriders, policyv1alpha1.PlaintextOverrider{Path: path, Operator: operator, Value: apiextensionsv1.JSON{Raw: value}})
			step := map[string]any{"op": operator, "path": path}
			if operator != "remove" {
				step["value"] = json.RawMessage(value)
			}
			steps = append(steps, step)
		}
		rawSteps, err := json.Marshal(steps)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(rawSteps)
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := patch.Apply(before)

		policy := override.CompileCluster(&policyv1alpha1.ClusterOverridePolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       policyv1alpha1.OverrideSpec{Overriders: policyv1alpha1.Overriders{Plaintext: overriders}},
		})
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(before); err != nil {
			t.Fatal(err)
		}
		got, _, gotErr := override.NewSet(policy).Apply(obj, member)
		if (wantErr != nil) != (gotErr != nil) {
			t.Fatalf("%s on %s: got error %v, want %v", rawSteps, before, gotErr, wantErr)
		}
		if gotErr != nil {
			return
		}
		text, err := got.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if !jsonpatch.Equal(text, want) {
			t.Fatalf("%s on %s: got %s, want %s", rawSteps, before, text, want)
		}
	})
}

func drawValue(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	switch {
	case depth > 0 && kind == 0:
		object := map[string]any{}
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "0", "x/y", "z~"}), 0, 3, rapid.ID[string]).Draw(t, "keys") {
			object[key] = drawValue(t, depth-1)
		}
		return object
	case depth > 0 && kind == 1:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	case kind == 2:
		return rapid.Int64Range(-5, 5).Draw(t, "number")
	case kind == 3:
		return rapid.Bool().Draw(t, "bool")
	default:
		return rapid.SampledFrom([]string{"", "a", "<&>"}).Draw(t, "text")
	}
}
