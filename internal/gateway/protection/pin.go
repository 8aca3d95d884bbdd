package protection

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// pin restricts a change to the version of the object that was checked, or to there being none: the API server refuses the change if the
// object has changed since, and then the new version is checked. It returns objbytes.ErrHasVersion if the change names another version itself;
// every other error can be written as it is.
func (c *change) pin(checked *object) error {
	c.unpin()
	if checked == nil {
		c.template = &absent
		return nil
	}
	return c.pinTo(checked.pin())
}

// pinTemplate restricts a change to the version of the object that was checked, if it concerns a template.
func (c *change) pinTemplate(checked *object) {
	c.unpin()
	pin := checked.pin()
	c.template = &pin
}

func (o *object) pin() objbytes.Pin {
	return objbytes.Pin{UID: o.Metadata.UID, ResourceVersion: o.Metadata.ResourceVersion, PatchCheck: objbytes.TestVersion}
}

func (c *change) pinTo(pin objbytes.Pin) error {
	sent, sentAs, err := c.pinnedBody(pin)
	switch {
	case errors.Is(err, objbytes.ErrHasVersion):
		return err
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
	case evicts(c.info):
		body, err = pin.Evict(as, c.body)
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
	options, err := queryOptions(query)
	if err != nil {
		return nil, err
	}
	if options.Preconditions, err = pin.Preconditions(options.Preconditions); err != nil {
		return nil, err
	}
	return json.Marshal(options)
}

func queryOptions(query map[string][]string) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, options); err != nil {
		return nil, err
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	return options, nil
}

// pinRehearsed pins a deletion, an eviction or a Binding of the object of info. If it names a version itself, a dry run shows whether that is the
// version that was checked; a comparison would not, because clients have versions that only handlers behind the guard can translate. The error
// can be written as it is.
func (g *Guard) pinRehearsed(c *change, info *request.RequestInfo, checked *object) error {
	err := c.pin(checked)
	if !errors.Is(err, objbytes.ErrHasVersion) {
		return err
	}
	rehearsal, err := c.rehearsal()
	if err != nil {
		return apierrors.NewBadRequest("the object may be protected, and the options of the request cannot be read: " + err.Error())
	}
	if err := inner.Do(g.Next, rehearsal).Err(); err != nil {
		return err
	}
	// It had the version that the client names during the dry run, and the version that was checked before and after.
	now, err := g.read(c.Context(), info)
	if err != nil {
		return err
	}
	if now == nil || !now.is(checked) {
		return apierrors.NewConflict(groupResource(info), info.Name, errModified)
	}
	return c.pinTo(objbytes.Pin{UID: checked.Metadata.UID, ResourceVersion: checked.Metadata.ResourceVersion, Replace: true})
}

// rehearsal returns a deletion, eviction or Binding as a dry run.
func (c *change) rehearsal() (*http.Request, error) {
	rehearsal := c.send().Clone(c.Context())
	query := rehearsal.URL.Query()
	query.Set("dryRun", metav1.DryRunAll)
	rehearsal.URL.RawQuery = query.Encode()
	rehearsal.Header.Set("Accept", runtime.ContentTypeJSON)
	rehearsal.Header.Del("Accept-Encoding")
	if c.info.Verb == "create" || len(c.body) == 0 {
		return rehearsal, nil
	}
	options, err := objbytes.DeleteOptions(mediaType(c.Header), c.body) // API servers ignore the query of a deletion with a body
	if err != nil {
		return nil, err
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	options.DryRun = []string{metav1.DryRunAll}
	body, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	rehearsal.Header.Set("Content-Type", runtime.ContentTypeJSON)
	rehearsal.Header.Del("Content-Length")
	rehearsal.Body, rehearsal.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return rehearsal, nil
}

func (c *change) unpin() { c.pinned, c.sent, c.sentAs, c.template = false, nil, "", nil }

func mediaType(header http.Header) string {
	contentType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return runtime.ContentTypeJSON
	}
	return contentType
}
