package serve

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

var codecs = serializer.NewCodecFactory(clientscheme.Scheme)

// shape is what a client wants of an object.
type shape int

const (
	whole shape = iota
	metadataOnly
	table
)

// form is the format of a response.
type form struct {
	shape     shape
	mediaType string
	pretty    bool
	// version is the version of meta.k8s.io of Tables and metadata.
	version schema.GroupVersion
	// include is what the rows of a Table contain of the object.
	include metav1.IncludeObjectPolicy
}

func (f form) isProtobuf() bool { return f.mediaType == runtime.ContentTypeProtobuf }

// key identifies forms in which an event is encoded alike.
func (f form) key() string {
	key := f.mediaType
	switch f.shape {
	case metadataOnly:
		key += ";metadata;" + f.version.Version
	case table:
		key += ";table;" + f.version.Version + ";" + string(f.include)
	}
	return key
}

// formOf reads the form that a client accepts. The error can be written as it is.
func formOf(r *http.Request, res *resource) (form, error) {
	options, _, err := negotiation.NegotiateOutputMediaType(r, codecs, shapes{textOnly: res.generic})
	if err != nil {
		return form{}, err
	}
	f := form{mediaType: options.Accepted.MediaType, pretty: options.Pretty || r.URL.Query().Get("pretty") == "true"}
	if options.Convert == nil {
		return f, nil
	}
	f.version = options.Convert.GroupVersion()
	if options.Convert.Kind != "Table" {
		f.shape = metadataOnly
		return f, nil
	}
	f.shape, f.include = table, metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
	switch f.include {
	case "":
		f.include = metav1.IncludeMetadata
	case metav1.IncludeMetadata, metav1.IncludeObject, metav1.IncludeNone:
	default:
		return f, apierrors.NewBadRequest("includeObject must be None, Metadata or Object")
	}
	return f, nil
}

// shapes restricts the shapes by encoding.
type shapes struct {
	// textOnly is set if whole objects have no protobuf encoding.
	textOnly bool
}

// AllowsMediaTypeTransform implements negotiation.EndpointRestrictions.
func (s shapes) AllowsMediaTypeTransform(_, subType string, kind *schema.GroupVersionKind) bool {
	if subType == "cbor" || kind == nil && s.textOnly && subType == "vnd.kubernetes.protobuf" {
		return false
	}
	if kind == nil {
		return true
	}
	if kind.GroupVersion() != metav1.SchemeGroupVersion && kind.GroupVersion() != metav1beta1.SchemeGroupVersion {
		return false
	}
	switch kind.Kind {
	case "Table":
		return subType == "json" || subType == "yaml"
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	default:
		return false
	}
}

// AllowsServerVersion implements negotiation.EndpointRestrictions.
func (shapes) AllowsServerVersion(string) bool { return false }

// AllowsStreamSchema implements negotiation.EndpointRestrictions.
func (shapes) AllowsStreamSchema(s string) bool { return s == "watch" }

// WriteError writes an error as a Status in the format the client accepts.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, r)
}
