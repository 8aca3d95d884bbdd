package userpolicies

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// decode returns the object in a body.
func decode(contentType string, content []byte) (map[string]any, error) {
	if contentType == "" {
		contentType = runtime.ContentTypeJSON
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("the content type %.60q cannot be read", contentType)
	}
	switch media {
	case runtime.ContentTypeProtobuf:
		return decodeProtobuf(content)
	case runtime.ContentTypeYAML, "application/apply-patch+yaml":
		if content, err = yaml.YAMLToJSON(content); err != nil {
			return nil, fmt.Errorf("the body is not YAML: %w", err)
		}
	case runtime.ContentTypeJSON:
	default:
		return nil, fmt.Errorf("policies and webhooks are written in JSON, YAML or protobuf, not in %.60s", media)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(content, &object); err != nil {
		return nil, fmt.Errorf("the body is not a JSON object: %w", err)
	}
	if object == nil {
		return nil, errors.New("the body is empty")
	}
	return object, nil
}

func decodeProtobuf(content []byte) (map[string]any, error) {
	decoded, kind, err := scheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("the body cannot be decoded: %w", err)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(decoded)
	if err != nil {
		return nil, fmt.Errorf("the body cannot be decoded: %w", err)
	}
	object["apiVersion"], object["kind"] = kind.GroupVersion().String(), kind.Kind
	return object, nil
}

func encode(object map[string]any) ([]byte, error) { return json.Marshal(object) }

// written completes what cells must have a copy of, if the answer of the hub tells.
func written(info *request.RequestInfo, want awaited, answer []byte) (awaited, bool) {
	want.name = info.Name
	if info.Verb == "delete" {
		return want, true
	}
	object, err := metadataOf(answer)
	if err != nil || object.GetUID() == "" {
		return awaited{}, false
	}
	want.name, want.uid, want.generation = object.GetName(), string(object.GetUID()), strconv.FormatInt(object.GetGeneration(), 10)
	return want, true
}

// metadataOf returns the metadata of an object in JSON, or in any encoding if its kind is known.
func metadataOf(answer []byte) (metav1.Object, error) {
	partial := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(answer, partial); err == nil {
		return partial, nil
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(answer, nil, nil)
	if err != nil {
		return nil, err
	}
	return meta.Accessor(decoded)
}
