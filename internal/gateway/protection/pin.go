package protection

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// pin restricts a change to the version of the object that was judged, if there is one: the API server refuses the change if the object
// has changed since, and then the new version is judged. A change that names a version itself needs no pin. The error can be written as
// it is.
func (c *change) pin(judged *object) error {
	c.unpin()
	if judged == nil {
		return nil
	}
	pin := objbytes.Pin{UID: judged.Metadata.UID, ResourceVersion: judged.Metadata.ResourceVersion, PatchCheck: objbytes.TestVersion}
	sent, sentAs, err := c.pinnedBody(pin)
	switch {
	case errors.Is(err, objbytes.ErrHasVersion):
		return nil
	case err != nil:
		return apierrors.NewBadRequest("the object may be protected, and the request body cannot be read: " + err.Error())
	}
	c.pinned, c.sent, c.sentAs = true, sent, sentAs
	return nil
}

// pinnedBody returns the body to send and its media type.
func (c *change) pinnedBody(pin objbytes.Pin) (body []byte, as string, err error) {
	as = mediaType(c.Header)
	switch {
	case c.info.Verb != "delete":
		body, err = pin.Write(as, c.body)
	case len(c.body) == 0:
		as = runtime.ContentTypeJSON
		body, err = pinnedOptions(pin, c.URL.Query())
	default:
		body, err = pin.Delete(as, c.body)
	}
	return body, as, err
}

// pinnedOptions returns the options of a deletion without a body. API servers take them from the query.
func pinnedOptions(pin objbytes.Pin, query map[string][]string) ([]byte, error) {
	options := &metav1.DeleteOptions{}
	if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, options); err != nil {
		return nil, err
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	var err error
	if options.Preconditions, err = pin.Preconditions(nil); err != nil {
		return nil, err
	}
	return json.Marshal(options)
}

func (c *change) unpin() { c.pinned, c.sent, c.sentAs = false, nil, "" }

func mediaType(header http.Header) string {
	contentType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return runtime.ContentTypeJSON
	}
	return contentType
}
