package protection

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// What is judged is one version of an object. To pin a change is to make it one of that version alone: the API server refuses it if the
// object has changed since, and then it is judged again.

// errOwnVersion is for a request that says itself which version it is for. Its client cannot have meant one that came after the judgement.
var errOwnVersion = errors.New("the request has a version of its own")

// pin makes a change one of the judged object alone, if there is one. The error can be written as it is.
func (c *change) pin(judged *object) error {
	c.unpin()
	if judged == nil {
		return nil
	}
	var err error
	contentType := mediaType(c.Header)
	if c.info.Verb == "delete" {
		c.sent, c.sentAs, err = pinDeletion(contentType, c.body, c.URL.Query(), judged)
	} else {
		c.sent, c.sentAs, err = pinWrite(contentType, c.body, judged.Metadata.ResourceVersion)
	}
	switch {
	case errors.Is(err, errOwnVersion):
		return nil
	case err != nil:
		return apierrors.NewBadRequest("the request's body cannot be read, and its object may be protected: " + err.Error())
	}
	c.pinned = true
	return nil
}

func (c *change) unpin() { c.pinned, c.sent, c.sentAs = false, nil, "" }

func mediaType(header http.Header) string {
	contentType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return runtime.ContentTypeJSON
	}
	return contentType
}

// pinDeletion puts preconditions into the options of a deletion. API servers take them from the body or, if there is none, from the query.
func pinDeletion(contentType string, body []byte, query map[string][]string, judged *object) ([]byte, string, error) {
	options := &metav1.DeleteOptions{}
	preconditions := metav1.Preconditions{UID: ptr.To(types.UID(judged.Metadata.UID)), ResourceVersion: &judged.Metadata.ResourceVersion}
	switch {
	case len(body) == 0:
		if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, options); err != nil {
			return nil, "", err
		}
		options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
		options.Preconditions = &preconditions
		pinned, err := json.Marshal(options)
		return pinned, runtime.ContentTypeJSON, err
	case contentType == runtime.ContentTypeProtobuf:
		pinned, err := pinProtoDeletion(body, preconditions)
		return pinned, contentType, err
	}
	content, err := asJSON(contentType, body)
	if err != nil {
		return nil, "", err
	}
	var given struct {
		Preconditions *metav1.Preconditions `json:"preconditions"`
	}
	if err := utiljson.Unmarshal(content, &given); err != nil {
		return nil, "", err
	}
	merged, err := mergePreconditions(given.Preconditions, preconditions)
	if err != nil {
		return nil, "", err
	}
	pinned, err := setJSON(content, "preconditions", merged)
	return pinned, runtime.ContentTypeJSON, err
}

func mergePreconditions(given *metav1.Preconditions, own metav1.Preconditions) (metav1.Preconditions, error) {
	if given == nil {
		return own, nil
	}
	if ptr.Deref(given.ResourceVersion, "") != "" {
		return own, errOwnVersion
	}
	if given.UID != nil {
		own.UID = given.UID
	}
	return own, nil
}

func pinProtoDeletion(body []byte, own metav1.Preconditions) ([]byte, error) {
	message, ok := bytes.CutPrefix(body, protobufMagic)
	if !ok {
		return nil, errors.New("the body is no message of Kubernetes")
	}
	var envelope runtime.Unknown
	var options metav1.DeleteOptions
	if err := errors.Join(envelope.Unmarshal(message), options.Unmarshal(envelope.Raw)); err != nil {
		return nil, err
	}
	merged, err := mergePreconditions(options.Preconditions, own)
	if err != nil {
		return nil, err
	}
	options.Preconditions = &merged
	if envelope.Raw, err = options.Marshal(); err != nil {
		return nil, err
	}
	content, err := envelope.Marshal()
	return append(bytes.Clone(protobufMagic), content...), err
}

// pinWrite puts a version into an object, or a patch of one.
func pinWrite(contentType string, body []byte, version string) ([]byte, string, error) {
	switch contentType {
	case string(types.JSONPatchType):
		pinned, err := pinJSONPatch(body, version)
		return pinned, contentType, err
	case runtime.ContentTypeProtobuf:
		pinned, err := pinProtoObject(body, version)
		return pinned, contentType, err
	}
	content, err := asJSON(contentType, body)
	if err != nil {
		return nil, "", err
	}
	var given struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := utiljson.Unmarshal(content, &given); err != nil {
		return nil, "", err
	}
	if len(given.Metadata) == 0 {
		given.Metadata = json.RawMessage("{}")
	}
	var metadata struct {
		ResourceVersion *string `json:"resourceVersion"`
	}
	if err := utiljson.Unmarshal(given.Metadata, &metadata); err != nil {
		return nil, "", err
	}
	if ptr.Deref(metadata.ResourceVersion, "") != "" {
		return nil, "", errOwnVersion
	}
	pinnedMetadata, err := setJSON(given.Metadata, "resourceVersion", version)
	if err != nil {
		return nil, "", err
	}
	pinned, err := setJSON(content, "metadata", json.RawMessage(pinnedMetadata))
	if contentType == "application/yaml" {
		contentType = runtime.ContentTypeJSON
	}
	return pinned, contentType, err
}

// asJSON returns a body as JSON. What is applied is YAML, of which JSON is a part.
func asJSON(contentType string, body []byte) ([]byte, error) {
	switch contentType {
	case "application/yaml", string(types.ApplyYAMLPatchType):
		return yaml.YAMLToJSON(body)
	case runtime.ContentTypeJSON, string(types.MergePatchType), string(types.StrategicMergePatchType):
		return body, nil
	default:
		return nil, errors.New("the body is in no form that can be read")
	}
}

// setJSON sets a field of a JSON object and leaves all others as they are.
func setJSON(object []byte, field string, value any) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := utiljson.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("there is no object")
	}
	content, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	fields[field] = content
	return json.Marshal(fields)
}

// pinJSONPatch lets a patch begin with a test of the version.
func pinJSONPatch(body []byte, version string) ([]byte, error) {
	var operations []json.RawMessage
	if err := utiljson.Unmarshal(body, &operations); err != nil {
		return nil, err
	}
	test, err := json.Marshal(map[string]string{"op": "test", "path": "/metadata/resourceVersion", "value": version})
	if err != nil {
		return nil, err
	}
	return json.Marshal(append([]json.RawMessage{test}, operations...))
}

var protobufMagic = []byte("k8s\x00")

// Numbers of fields: the metadata in an object, the version in the metadata.
const (
	objectMetadata          = 1
	metadataResourceVersion = 6
)

// pinProtoObject puts a version behind what there is; of a field that occurs twice the last one counts.
func pinProtoObject(body []byte, version string) ([]byte, error) {
	message, ok := bytes.CutPrefix(body, protobufMagic)
	if !ok {
		return nil, errors.New("the body is no message of Kubernetes")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(message); err != nil {
		return nil, err
	}
	metadata := protowire.AppendTag(nil, metadataResourceVersion, protowire.BytesType)
	metadata = protowire.AppendString(metadata, version)
	// Messages that occur twice are merged.
	given, err := versionInProto(envelope.Raw)
	if err != nil {
		return nil, err
	}
	if given != "" {
		return nil, errOwnVersion
	}
	envelope.Raw = protowire.AppendTag(envelope.Raw, objectMetadata, protowire.BytesType)
	envelope.Raw = protowire.AppendBytes(envelope.Raw, metadata)
	content, err := envelope.Marshal()
	return append(bytes.Clone(protobufMagic), content...), err
}

// versionInProto returns the version in an object.
func versionInProto(object []byte) (string, error) {
	version := ""
	for len(object) > 0 {
		number, kind, n := protowire.ConsumeField(object)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		if number == objectMetadata && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(object[:n])
			content, _ := protowire.ConsumeBytes(object[tag:n])
			var metadata metav1.ObjectMeta
			if err := metadata.Unmarshal(content); err != nil {
				return "", err
			}
			version = metadata.ResourceVersion
		}
		object = object[n:]
	}
	return version, nil
}
