package protection

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
)

// object has the fields of any object that protection needs.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Replicas *int64 `json:"replicas"`
	} `json:"spec"`

	// data is the JSON of the object.
	data []byte
}

// decode reads an object as API servers do: "Metadata" is not metadata. A spec whose replicas are not a number has none.
func decode(data []byte) (*object, error) {
	o := &object{data: data}
	if err := utiljson.Unmarshal(data, o); err == nil {
		return o, nil
	}
	var bare struct {
		Kind     string          `json:"kind"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := utiljson.Unmarshal(data, &bare); err != nil {
		return nil, fmt.Errorf("reading an object to protect: %w", err)
	}
	o = &object{Kind: bare.Kind, data: data}
	if err := utiljson.Unmarshal(bare.Metadata, &o.Metadata); err != nil {
		return nil, fmt.Errorf("reading an object to protect: %w", err)
	}
	return o, nil
}

// is reports whether two objects are the same, in the same version.
func (o *object) is(other *object) bool {
	return o.Metadata.UID == other.Metadata.UID && o.Metadata.ResourceVersion == other.Metadata.ResourceVersion
}

// protectedByLabel reports whether a label of the object forbids its deletion.
func (o *object) protectedByLabel() bool {
	return o.Metadata.Labels[names.DeletionProtectedLabel] == names.DeletionProtectedAlways
}

// glass returns the reason to override the object's protection, "" if there is none.
func (o *object) glass() string { return o.Metadata.Annotations[names.BreakGlassAnnotation] }

// scaledToZero reports whether the object has zero replicas.
func (o *object) scaledToZero() bool { return o.Spec.Replicas != nil && *o.Spec.Replicas == 0 }

// replicas returns the replicas of an object that had some before. Without any it has none left: a Scale leaves out a zero, and a change
// that removes the field could otherwise begin a scale-down in two steps.
func (o *object) replicas() int64 {
	if o.Spec.Replicas == nil {
		return 0
	}
	return *o.Spec.Replicas
}

// count sets the replicas of an object that may keep them elsewhere than in spec.replicas, which no paths stand for. It returns the path at
// which they were found.
func (o *object) count(paths ...[]string) (found []string, err error) {
	if len(paths) == 0 {
		return nil, nil
	}
	o.Spec.Replicas = nil
	var content map[string]any
	if err := utiljson.Unmarshal(o.data, &content); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading an object to protect: %w", err))
	}
	for _, path := range paths {
		if replicas, found, err := unstructured.NestedInt64(content, path...); found && err == nil {
			o.Spec.Replicas = &replicas
			return path, nil
		}
	}
	return nil, nil
}

// groupKind returns the group and kind of an object that was read for a request.
func (o *object) groupKind(info *request.RequestInfo) schema.GroupKind {
	return schema.GroupKind{Group: info.APIGroup, Kind: o.Kind}
}
