package protection

import (
	"fmt"

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

	// data is the JSON of the object.
	data []byte
}

// decode reads an object as API servers do: "Metadata" is not metadata.
func decode(data []byte) (*object, error) {
	o := &object{data: data}
	if err := utiljson.Unmarshal(data, o); err != nil {
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

// groupKind returns the group and kind of an object that was read for a request.
func (o *object) groupKind(info *request.RequestInfo) schema.GroupKind {
	return schema.GroupKind{Group: info.APIGroup, Kind: o.Kind}
}
