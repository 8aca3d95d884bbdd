package splice

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// NewErrorEvent returns the event that ends a failed watch.
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
	typeMeta = objbytes.AppendString(typeMeta, objbytes.TypeMetaAPIVersion, status.APIVersion)
	typeMeta = objbytes.AppendString(typeMeta, objbytes.TypeMetaKind, status.Kind)
	object := append([]byte(nil), []byte(objbytes.ProtobufPrefix)...)
	object = objbytes.AppendBytes(object, objbytes.UnknownTypeMeta, typeMeta)
	object = objbytes.AppendBytes(object, objbytes.UnknownRaw, content)
	object = objbytes.AppendString(object, objbytes.UnknownContentEncoding, "")
	object = objbytes.AppendString(object, objbytes.UnknownContentType, "")
	event := objbytes.AppendString(nil, objbytes.WatchEventType, string(Error))
	return objbytes.AppendBytes(event, objbytes.WatchEventObject, objbytes.AppendBytes(nil, objbytes.RawExtensionRaw, object)), nil
}
