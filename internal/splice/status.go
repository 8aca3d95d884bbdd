package splice

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewErrorEvent returns the event with which a watch ends because of a failure.
func NewErrorEvent(encoding Encoding, status metav1.Status) (*Event, error) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	encode := jsonStatusEvent
	if encoding == Protobuf {
		encode = protoStatusEvent
	}
	raw, err := encode(status)
	if err != nil {
		return nil, fmt.Errorf("encoding the error %q as a watch event: %w", status.Message, err)
	}
	return ParseEvent(raw, encoding)
}

func jsonStatusEvent(status metav1.Status) ([]byte, error) {
	return json.Marshal(struct {
		Type   EventType     `json:"type"`
		Object metav1.Status `json:"object"`
	}{Error, status})
}

func protoStatusEvent(status metav1.Status) ([]byte, error) {
	content, err := status.Marshal()
	if err != nil {
		return nil, err
	}
	var typeMeta []byte
	typeMeta = appendProtoString(typeMeta, typeMetaAPIVersion, status.APIVersion)
	typeMeta = appendProtoString(typeMeta, typeMetaKind, status.Kind)
	object := append([]byte(nil), protoPrefix...)
	object = appendProtoBytes(object, unknownTypeMeta, typeMeta)
	object = appendProtoBytes(object, unknownRaw, content)
	object = appendProtoString(object, unknownContentEncoding, "")
	object = appendProtoString(object, unknownContentType, "")
	event := appendProtoString(nil, watchEventType, string(Error))
	return appendProtoBytes(event, watchEventObject, appendProtoBytes(nil, rawExtensionRaw, object)), nil
}
