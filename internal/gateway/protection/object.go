package protection

import (
	"encoding/json"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/api/names"
)

// object has the fields of any object that protection needs.
type object struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Replicas *int64 `json:"replicas"`
	} `json:"spec"`
}

// decode reads an object as API servers do: "Metadata" is not metadata. A spec whose replicas are not a number has none.
func decode(data []byte) (*object, error) {
	o := &object{}
	if err := utiljson.Unmarshal(data, o); err == nil {
		return o, nil
	}
	var bare struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := utiljson.Unmarshal(data, &bare); err != nil {
		return nil, fmt.Errorf("reading an object to protect: %w", err)
	}
	o = &object{}
	if err := utiljson.Unmarshal(bare.Metadata, &o.Metadata); err != nil {
		return nil, fmt.Errorf("reading an object to protect: %w", err)
	}
	return o, nil
}

// protectedByLabel reports whether a label of the object forbids its deletion.
func (o *object) protectedByLabel() bool {
	return o.Metadata.Labels[names.DeletionProtectedLabel] == names.DeletionProtectedAlways
}

// glass returns the reason to override the object's protection, "" if there is none.
func (o *object) glass() string { return o.Metadata.Annotations[names.BreakGlassAnnotation] }

// scaledToZero reports whether the object has zero replicas.
func (o *object) scaledToZero() bool { return o.Spec.Replicas != nil && *o.Spec.Replicas == 0 }

// replicas returns the replicas of an object, or of its scale, which leaves out a zero. It is nil if the object has none.
func (o *object) replicas(subresource string) *int64 {
	if subresource == "scale" && o.Spec.Replicas == nil {
		return new(int64)
	}
	return o.Spec.Replicas
}
