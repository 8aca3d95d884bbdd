package protection

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// noVersion is a resourceVersion that no object has: it is that of an empty store. An API server refuses to change an object that is not in this
// version, and ignores the version where there is no object: it creates one, or finds none.
const noVersion = "1"

// absent restricts a request to there being no object.
var absent = objbytes.Pin{ResourceVersion: noVersion, PatchCheck: objbytes.TestVersion, Replace: true}

// templateKey holds the Pin of a request that is restricted if it concerns a template. Then no policy was concerned when it was checked. Objects of
// members, which have the same paths, are in other versions.
type templateKey struct{}

func withTemplatePin(r *http.Request, pin objbytes.Pin) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), templateKey{}, pin))
}

func templatePin(r *http.Request) (objbytes.Pin, bool) {
	pin, found := r.Context().Value(templateKey{}).(objbytes.Pin)
	return pin, found
}

// serveTemplate sends a request on the condition that its object is still in the version that was checked, or still absent. If it names another
// version itself, a dry run shows whether that is the one that was checked.
func (g *Guard) serveTemplate(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, pin objbytes.Pin) {
	body, err := forward.ReadBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	c := &change{Request: r, info: info, body: body}
	err = c.pinTo(pin)
	if errors.Is(err, objbytes.ErrHasVersion) {
		var after *object
		if after, err = g.dryRun(c); err == nil && after.Metadata.ResourceVersion != pin.ResourceVersion {
			err = apierrors.NewConflict(groupResource(info), info.Name, errModified)
		}
	}
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	g.Next.ServeHTTP(w, c.send())
}
