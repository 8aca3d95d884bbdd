package router

import (
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/splice"
)

// form is the encoding of a list or watch over several cells.
type form struct {
	encoding splice.Encoding
	table    bool
	yaml     bool
}

// acceptable returns the Accept header for the cells: the encodings that the client accepts and the gateway can merge, in the client's
// order. The gateway converts JSON to YAML itself.
func acceptable(r *http.Request) (accept string, yaml bool, err error) {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if header == "" || header == "*/*" {
		return "application/json", false, nil
	}
	var clauses []string
	for clause := range strings.SplitSeq(header, ",") {
		mediaType, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil {
			continue
		}
		switch mediaType {
		case "application/json", splice.ProtobufContentType:
		case "*/*", "application/*":
			mediaType = "application/json"
		case "application/yaml":
			if len(clauses) == 0 {
				yaml = true
			}
			mediaType = "application/json"
		default:
			continue
		}
		clauses = append(clauses, mime.FormatMediaType(mediaType, params))
	}
	if len(clauses) == 0 {
		return "", false, notAcceptable("only application/json, application/yaml and " + splice.ProtobufContentType + " are served for lists and watches")
	}
	return strings.Join(clauses, ","), yaml, nil
}

func notAcceptable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: message,
	}}
}

// formOf reads the encoding of an answer from its content type.
func formOf(contentType string) (form, bool) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return form{}, false
	}
	switch mediaType {
	case "application/json":
		return form{encoding: splice.JSON}, true
	case splice.ProtobufContentType:
		return form{encoding: splice.Protobuf}, true
	default:
		return form{}, false
	}
}
