package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Decode decodes one object. It may overwrite its input.
type Decode func(object []byte) (runtime.Object, error)

// Known reports whether an object is known in this version or a newer one.
type Known func(namespace, name, resourceVersion string) bool

// ResourceSource returns the source of all objects of a resource in all namespaces. It decodes them one by one; a general
// client would decode a whole list at once, with managed fields. Known may be nil; watch events of known objects are
// skipped, lists are complete.
func ResourceSource(client rest.Interface, resource schema.GroupVersionResource, decode Decode, known Known) Source {
	path := []string{"/apis", resource.Group, resource.Version, resource.Resource}
	if resource.Group == "" {
		path = []string{"/api", resource.Version, resource.Resource}
	}
	return Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			body, err := client.Get().AbsPath(path...).SpecificallyVersionedParams(&options, metav1.ParameterCodec, metav1.SchemeGroupVersion).
				SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
			if err != nil {
				return nil, err
			}
			return decodeList(body, decode)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return OpenWatch(ctx, client.Get().AbsPath(path...), options, decode, known)
		},
	}
}

// objectList is a list of objects of any type.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject returns a copy.
func (l *objectList) DeepCopyObject() runtime.Object {
	clone := &objectList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for _, item := range l.Items {
		clone.Items = append(clone.Items, item.DeepCopyObject())
	}
	return clone
}

func decodeList(body []byte, decode Decode) (*objectList, error) {
	var raw struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, fmt.Errorf("reading a list: %w", err)
	}
	list := &objectList{TypeMeta: raw.TypeMeta, ListMeta: raw.Metadata, Items: make([]runtime.Object, 0, len(raw.Items))}
	// Items of built-in kinds do not carry their kind.
	kind := schema.FromAPIVersionAndKind(raw.APIVersion, strings.TrimSuffix(raw.Kind, "List"))
	for i := range raw.Items {
		obj, err := decode(raw.Items[i])
		if err != nil {
			return nil, fmt.Errorf("reading an object of a list: %w", err)
		}
		if obj.GetObjectKind().GroupVersionKind().Kind == "" {
			obj.GetObjectKind().SetGroupVersionKind(kind)
		}
		list.Items = append(list.Items, obj)
	}
	return list, nil
}
