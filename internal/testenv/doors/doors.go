// Package doors lists the ways to change or delete an object, for tests of what protects objects. The list is made from the discovery of an
// API server, so that a new kind, subresource or verb is an error until somebody has classified it here.
package doors

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// Label is the label that doors of the harm Unlabel take away, and by which collections are deleted.
const Label = "doors"

// Harm is what a request through a door would do.
type Harm string

const (
	// Delete deletes the object.
	Delete Harm = "delete"
	// Unlabel takes the Label away.
	Unlabel Harm = "unlabel"
	// Scale sets spec.replicas to 0, or to another lower number.
	Scale Harm = "scale"
	// Annotate adds an annotation.
	Annotate Harm = "annotate"
	// Create creates an object.
	Create Harm = "create"
	// Bind assigns a pod to a node, and changes the Label: API servers copy the labels of a Binding to the pod.
	Bind Harm = "bind"
)

// harmless are the subresources and resources with which nothing is changed or deleted, with the reason.
var harmless = map[string]string{
	"attach": "a stream to a container", "exec": "a stream to a container", "portforward": "a stream to a container", "proxy": "a request to somebody else",
	"log": "read only", "token": "makes a token, and changes no object",
	"localsubjectaccessreviews": "a question", "selfsubjectaccessreviews": "a question", "selfsubjectrulesreviews": "a question", "subjectaccessreviews": "a question",
	"selfsubjectreviews": "a question", "tokenreviews": "a question",
	"approval": "of certificate signing requests, which are not templates",
}

// Kind is a resource with its subresources.
type Kind struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      []string
	// Subresources are the verbs of each subresource.
	Subresources map[string][]string
}

// Discover returns the kinds that an API server serves, in all versions. The error names what nobody has classified.
func Discover(client discovery.DiscoveryInterface) ([]Kind, error) {
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	var kinds []Kind
	var unknown []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		found := map[string]*Kind{}
		var order []string
		for i := range list.APIResources {
			r := &list.APIResources[i]
			name, subresource, isSubresource := strings.Cut(r.Name, "/")
			if found[name] == nil {
				found[name] = &Kind{GroupVersionResource: version.WithResource(name), Namespaced: r.Namespaced, Subresources: map[string][]string{}}
				order = append(order, name)
			}
			if isSubresource {
				found[name].Subresources[subresource] = r.Verbs
			} else {
				found[name].Kind, found[name].Verbs = r.Kind, r.Verbs
			}
			unknown = append(unknown, unclassified(list.GroupVersion, name, subresource, r.Verbs)...)
		}
		for _, name := range order {
			kinds = append(kinds, *found[name])
			if kind := found[name]; !kind.isSampled() {
				unknown = append(unknown, fmt.Sprintf("%s, which has no sample and no reason for that", name+"."+kind.Group))
			}
		}
	}
	unknown = append(unknown, unclassifiedGroups(kinds)...)
	if len(unknown) > 0 {
		return nil, fmt.Errorf("classify these in package doors, and check what they can do to a protected and to a frozen object: %s", strings.Join(unknown, ", "))
	}
	return kinds, nil
}

// inSeveralGroups are the kinds that are served in several groups. Protection treats these as one.
var inSeveralGroups = map[string]bool{"Event": true}

// unclassifiedGroups returns the kinds that may be served in several groups without anybody knowing.
func unclassifiedGroups(kinds []Kind) (unknown []string) {
	groups := map[string]string{}
	for _, kind := range kinds {
		name := kind.Resource + " " + kind.Kind
		group, found := groups[name]
		groups[name] = kind.Group
		if found && group != kind.Group && !inSeveralGroups[kind.Kind] && !strings.HasSuffix(kind.Group, testGroups) {
			unknown = append(unknown, fmt.Sprintf("%s, which are in the groups %q and %q", kind.Resource, group, kind.Group))
		}
	}
	return unknown
}

// unclassified returns what is not known of a resource or subresource.
func unclassified(groupVersion, resource, subresource string, verbs []string) []string {
	if harmless[subresource] != "" || subresource == "" && harmless[resource] != "" {
		return nil
	}
	known := sets.New("get", "list", "watch")
	switch subresource {
	case "":
		known.Insert("create", "update", "patch", "delete", "deletecollection")
	case "status", "scale", "ephemeralcontainers", "resize":
		known.Insert("update", "patch")
	case "finalize":
		known.Insert("update")
	case "eviction", "binding":
		known.Insert("create")
	}
	var unknown []string
	for _, verb := range verbs {
		if !known.Has(verb) {
			unknown = append(unknown, fmt.Sprintf("%s of %s/%s/%s", verb, groupVersion, resource, subresource))
		}
	}
	return unknown
}

// Door is a request that would do harm to an object.
type Door struct {
	Harm                Harm
	Method, Path, Query string
	ContentType         string
	Body                []byte
}

// String names a door, without the names of namespace and object.
func (d Door) String() string {
	query, _ := url.QueryUnescape(d.Query)
	return strings.Join(strings.Fields(fmt.Sprintf("%s: %s %s %s %s", d.Harm, d.Method, d.Path, query, d.ContentType)), " ")
}

// Of returns the doors of an object, which was read from an API server.
func (k Kind) Of(object *unstructured.Unstructured) ([]Door, error) {
	b := &builder{kind: k, object: object, path: k.path(object.GetNamespace())}
	for _, verb := range k.Verbs {
		b.add("", verb)
	}
	for subresource, verbs := range k.Subresources {
		if harmless[subresource] == "" {
			for _, verb := range verbs {
				b.add(subresource, verb)
			}
		}
	}
	slices.SortFunc(b.doors, func(x, y Door) int { return strings.Compare(x.String(), y.String()) })
	return b.doors, b.err
}

// Annotating returns the doors that add an annotation to an object.
func (k Kind) Annotating(object *unstructured.Unstructured, key, value string) ([]Door, error) {
	b := &builder{kind: k, object: object, path: k.path(object.GetNamespace()), annotation: map[string]string{key: value}}
	path := b.path + "/" + object.GetName()
	b.updates(path, "")
	b.patches(path, "")
	for subresource, verbs := range k.Subresources {
		switch {
		case harmless[subresource] != "" || subresource == "scale" || subresource == "eviction": // without metadata of the object
		case subresource == "binding":
			b.bindings(path + "/binding")
		case slices.Contains(verbs, "patch"):
			b.updates(path+"/"+subresource, subresource)
			b.patches(path+"/"+subresource, subresource)
		}
	}
	return b.doors, b.err
}

// Creations returns the doors through which an object can be created.
func (k Kind) Creations(object *unstructured.Unstructured) ([]Door, error) {
	b := &builder{kind: k, object: object, path: k.path(object.GetNamespace())}
	unnamed := object.DeepCopy()
	unnamed.SetName("")
	unnamed.SetGenerateName(object.GetName() + "-")
	b.written(Door{Harm: Create, Method: http.MethodPost, Path: b.path}, object)
	b.written(Door{Harm: Create, Method: http.MethodPost, Path: b.path}, unnamed)
	b.written(Door{Harm: Create, Method: http.MethodPut, Path: b.path + "/" + object.GetName()}, object)
	body, err := json.Marshal(object)
	b.door(Door{Harm: Create, Method: http.MethodPatch, Path: b.path + "/" + object.GetName(), Query: "fieldManager=doors", ContentType: string(types.ApplyYAMLPatchType), Body: body})
	return b.doors, errors.Join(b.err, err)
}

// Naming returns the door with a version of the object that the client names; false if it has no place for one.
func (d Door) Naming(version string) (Door, bool, error) {
	pin := objbytes.Pin{ResourceVersion: version, PatchCheck: objbytes.SetVersion, Replace: true}
	var err error
	switch {
	case d.Method == http.MethodDelete && d.Body == nil:
		if d.Query != "" && !strings.Contains(d.Query, "Selector") {
			return d, false, nil // API servers take the options from the body or from the query
		}
		d.ContentType, d.Body = runtime.ContentTypeJSON, fmt.Appendf(nil, `{"preconditions":{"resourceVersion":%q}}`, version)
	case d.Method == http.MethodDelete:
		d.Body, err = pin.Delete(d.ContentType, d.Body)
	case strings.HasSuffix(d.Path, "/eviction"):
		d.Body, err = pin.Evict(d.ContentType, d.Body)
	default:
		d.Body, err = pin.Write(d.ContentType, d.Body)
	}
	if d.ContentType == runtime.ContentTypeYAML {
		d.ContentType = runtime.ContentTypeJSON // which the pin has made of it
	}
	return d, true, err
}

// AlsoNaming adds, after doors, the same doors with each of some versions that the client names.
func AlsoNaming(list []Door, versions ...string) ([]Door, error) {
	all := slices.Clone(list)
	for _, d := range list {
		for _, version := range versions {
			named, found, err := d.Naming(version)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d, err)
			}
			if found {
				all = append(all, named)
			}
		}
	}
	return all, nil
}

// path is the path of a collection.
func (k Kind) path(namespace string) string {
	path := "/apis/" + k.Group + "/" + k.Version
	if k.Group == "" {
		path = "/api/" + k.Version
	}
	if k.Namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.Resource
}

// Path is the path of an object.
func (k Kind) Path(namespace, name string) string { return k.path(namespace) + "/" + name }

// Can reports whether a verb is supported.
func (k Kind) Can(verb string) bool { return slices.Contains(k.Verbs, verb) }

// builder collects the doors of an object.
type builder struct {
	kind   Kind
	object *unstructured.Unstructured
	path   string
	// annotation, if not nil, is what the doors add instead of another harm.
	annotation map[string]string
	doors      []Door
	err        error
}

func (b *builder) add(subresource, verb string) {
	path := b.path + "/" + b.object.GetName()
	if subresource != "" {
		path += "/" + subresource
	}
	switch {
	case verb == "delete":
		b.deletions(path)
	case verb == "deletecollection":
		selector := url.QueryEscape(Label + "=" + b.object.GetLabels()[Label])
		b.door(Door{Harm: Delete, Method: http.MethodDelete, Path: b.path, Query: "labelSelector=" + selector})
		b.door(Door{Harm: Delete, Method: http.MethodDelete, Path: b.path, Query: "limit=10&labelSelector=" + selector})
		b.door(Door{Harm: Delete, Method: http.MethodDelete, Path: b.path, Query: "fieldSelector=" + url.QueryEscape("metadata.name="+b.object.GetName())})
	case subresource == "eviction":
		b.evictions(path)
	case subresource == "binding":
		b.bindings(path)
	case verb == "update":
		b.updates(path, subresource)
	case verb == "patch":
		b.patches(path, subresource)
	}
}

func (b *builder) door(d Door) { b.doors = append(b.doors, d) }

func (b *builder) deletions(path string) {
	uid, version := string(b.object.GetUID()), b.object.GetResourceVersion()
	options := func(more string) string { return `{"apiVersion":"v1","kind":"DeleteOptions"` + more + `}` }
	for _, query := range []string{"", "propagationPolicy=Background", "propagationPolicy=Foreground", "propagationPolicy=Orphan", "gracePeriodSeconds=0", "uid=" + uid} {
		b.door(Door{Harm: Delete, Method: http.MethodDelete, Path: path, Query: query})
	}
	for _, body := range []string{
		options(""), "{}", options(`,"preconditions":{"uid":"` + uid + `"}`), options(`,"preconditions":{"resourceVersion":"` + version + `"}`),
		options(`,"preconditions":{"uid":"` + uid + `","resourceVersion":"` + version + `"},"propagationPolicy":"Foreground"`),
	} {
		b.door(Door{Harm: Delete, Method: http.MethodDelete, Path: path, ContentType: runtime.ContentTypeJSON, Body: []byte(body)})
	}
	b.door(Door{Harm: Delete, Method: http.MethodDelete, Path: path, ContentType: runtime.ContentTypeYAML, Body: []byte("propagationPolicy: Background\n")})
	b.encoded(Door{Harm: Delete, Method: http.MethodDelete, Path: path}, options(""))
}

func (b *builder) evictions(path string) {
	for _, body := range []string{
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"NAME"}}`,
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"NAME"},"deleteOptions":{"gracePeriodSeconds":0}}`,
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"NAME"},"deleteOptions":{"preconditions":{"resourceVersion":"VERSION"}}}`,
	} {
		body = strings.NewReplacer("NAME", b.object.GetName(), "VERSION", b.object.GetResourceVersion()).Replace(body)
		b.door(Door{Harm: Delete, Method: http.MethodPost, Path: path, ContentType: runtime.ContentTypeJSON, Body: []byte(body)})
		b.encoded(Door{Harm: Delete, Method: http.MethodPost, Path: path}, body)
	}
}

func (b *builder) bindings(path string) {
	metadata := fmt.Sprintf(`"labels":{%q:"other"}`, Label)
	if b.annotation != nil {
		metadata = `"annotations":` + b.annotations()
	}
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q,%s},"target":{"kind":"Node","name":"some"}}`, b.object.GetName(), metadata)
	for _, path := range []string{path, strings.TrimSuffix(b.path, "pods") + "bindings"} {
		b.door(Door{Harm: Bind, Method: http.MethodPost, Path: path, ContentType: runtime.ContentTypeJSON, Body: body})
		b.encoded(Door{Harm: Bind, Method: http.MethodPost, Path: path}, string(body))
	}
}

// annotations are those to add, in JSON.
func (b *builder) annotations() string {
	data, err := json.Marshal(b.annotation)
	b.err = errors.Join(b.err, err)
	return string(data)
}

// harmed returns a copy of the object after the harm.
func (b *builder) harmed(harm Harm) *unstructured.Unstructured {
	object := b.object.DeepCopy()
	switch harm {
	case Unlabel:
		object.SetLabels(nil)
	case Annotate:
		object.SetAnnotations(b.annotation)
	case Scale:
		_ = unstructured.SetNestedField(object.Object, int64(0), "spec", "replicas")
	}
	return object
}

// harms are the harms that a change can do to the object.
func (b *builder) harms() []Harm {
	if b.annotation != nil {
		return []Harm{Annotate}
	}
	if _, found, _ := unstructured.NestedInt64(b.object.Object, "spec", "replicas"); found {
		return []Harm{Unlabel, Scale}
	}
	return []Harm{Unlabel}
}

func (b *builder) updates(path, subresource string) {
	if subresource == "scale" {
		body := fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":0}}`, b.object.GetName(), b.object.GetNamespace())
		for _, body := range []string{body, strings.Replace(body, `"replicas":0`, "", 1)} {
			b.door(Door{Harm: Scale, Method: http.MethodPut, Path: path, ContentType: runtime.ContentTypeJSON, Body: []byte(body)})
			b.encoded(Door{Harm: Scale, Method: http.MethodPut, Path: path}, body)
		}
		return
	}
	for _, harm := range b.harms() {
		for _, version := range []string{"", b.object.GetResourceVersion()} {
			if version == "" && !b.builtIn() {
				continue // a custom resource cannot be updated without
			}
			object := b.harmed(harm)
			object.SetResourceVersion(version)
			b.written(Door{Harm: harm, Method: http.MethodPut, Path: path}, object)
		}
	}
}

// written adds a door with an object as its body, in each form.
func (b *builder) written(d Door, object *unstructured.Unstructured) {
	body, err := json.Marshal(object)
	if err != nil {
		b.err = err
		return
	}
	asYAML, err := yaml.JSONToYAML(body)
	if err != nil {
		b.err = err
		return
	}
	d.ContentType, d.Body = runtime.ContentTypeJSON, body
	b.door(d)
	d.ContentType, d.Body = runtime.ContentTypeYAML, asYAML
	b.door(d)
	b.encoded(d, string(body))
}

func (b *builder) patches(path, subresource string) {
	harms := b.harms()
	if subresource == "scale" {
		harms = []Harm{Scale}
	}
	for _, harm := range harms {
		merge, operations, applied := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, Label), fmt.Sprintf(`[{"op":"remove","path":"/metadata/labels/%s"}]`, Label), fmt.Sprintf(`{"metadata":{"labels":{%q:"other"}}}`, Label)
		switch harm {
		case Annotate:
			merge = `{"metadata":{"annotations":` + b.annotations() + `}}`
			operations, applied = `[{"op":"add","path":"/metadata/annotations","value":`+b.annotations()+`}]`, merge
		case Scale:
			merge, operations, applied = `{"spec":{"replicas":0}}`, `[{"op":"replace","path":"/spec/replicas","value":0}]`, `{"spec":{"replicas":0}}`
		}
		gv, kind := b.object.GetAPIVersion(), b.object.GetKind()
		if subresource == "scale" {
			gv, kind = "autoscaling/v1", "Scale"
		}
		applied = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,%s`, gv, kind, applied[1:])
		b.door(Door{Harm: harm, Method: http.MethodPatch, Path: path, ContentType: string(types.MergePatchType), Body: []byte(merge)})
		b.door(Door{Harm: harm, Method: http.MethodPatch, Path: path, ContentType: string(types.JSONPatchType), Body: []byte(operations)})
		if b.builtIn() || subresource != "scale" { // API servers cannot convert a Scale that is applied to a custom resource
			b.door(Door{Harm: harm, Method: http.MethodPatch, Path: path, Query: "fieldManager=doors&force=true", ContentType: string(types.ApplyYAMLPatchType), Body: []byte(applied)})
		}
		if b.builtIn() {
			b.door(Door{Harm: harm, Method: http.MethodPatch, Path: path, ContentType: string(types.StrategicMergePatchType), Body: []byte(merge)})
		}
		if subresource == "" && harm != Annotate {
			b.indirect(path, harm)
		}
	}
}

// indirect adds patches that do not name what they take away.
func (b *builder) indirect(path string, harm Harm) {
	label := "/metadata/labels/" + Label
	directives := []string{fmt.Sprintf(`{"metadata":{"$patch":"replace","name":%q,"namespace":%q}}`, b.object.GetName(), b.object.GetNamespace()),
		`{"metadata":{"labels":{"$patch":"replace","kept":"yes"}}}`, `{"metadata":{"labels":{"$retainKeys":["kept"],"kept":"yes"}}}`}
	operations := fmt.Sprintf(`[{"op":"test","path":%q,"value":%q},{"op":"move","from":%q,"path":"/metadata/labels/moved"}]`, label, b.object.GetLabels()[Label], label)
	if harm == Scale {
		spec, _, _ := unstructured.NestedMap(b.object.Object, "spec")
		delete(spec, "replicas")
		others, err := json.Marshal(slices.Sorted(maps.Keys(spec)))
		if err != nil {
			b.err = err
			return
		}
		directives = []string{fmt.Sprintf(`{"spec":{"$retainKeys":%s}}`, others)}
		operations = `[{"op":"copy","from":"/metadata/generation","path":"/spec/replicas"}]` // which is lower
	}
	b.door(Door{Harm: harm, Method: http.MethodPatch, Path: path, Query: "fieldManager=indirect", ContentType: string(types.JSONPatchType), Body: []byte(operations)})
	for i, directive := range directives {
		if b.builtIn() {
			b.door(Door{Harm: harm, Method: http.MethodPatch, Path: path, Query: fmt.Sprintf("fieldManager=indirect-%d", i), ContentType: string(types.StrategicMergePatchType), Body: []byte(directive)})
		}
	}
}

// builtIn reports whether the kind is compiled into API servers.
func (b *builder) builtIn() bool {
	return scheme.Scheme.Recognizes(b.kind.GroupVersion().WithKind(b.kind.Kind))
}

// encoded adds a door with its body in protobuf, if the kind has that form.
func (b *builder) encoded(d Door, body string) {
	if !b.builtIn() {
		return
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(body), nil, nil)
	if err != nil {
		b.err = fmt.Errorf("%s: %w", d, err)
		return
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	d.ContentType = runtime.ContentTypeProtobuf
	if d.Body, err = runtime.Encode(info.Serializer, object); err != nil {
		b.err = fmt.Errorf("%s: %w", d, err)
		return
	}
	b.door(d)
}
