package router

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// answers are what cells answered a list with, in the order of their indexes.
type answers struct {
	cells     []slots.Index
	responses []*http.Response
}

func (a *answers) close() {
	for _, response := range a.responses {
		response.Body.Close()
	}
}

// refused returns the first answer that is not a list. Every cell is asked the same, so what one refuses nobody grants.
func (a *answers) refused() *http.Response {
	for _, response := range a.responses {
		if response.StatusCode != http.StatusOK {
			return response
		}
	}
	return nil
}

// form returns the form that all answers have in common. Content types do not tell Tables from other objects, but their first bytes do.
func (a *answers) form() (form, error) {
	var common form
	for i, response := range a.responses {
		f, ok := formOf(response.Header.Get("Content-Type"))
		if ok && f.encoding == splice.JSON {
			peeked := bufio.NewReaderSize(response.Body, 4<<10)
			head, _ := peeked.Peek(len(tableHead)) // what cannot be read now cannot be merged later
			f.table = string(head) == tableHead
			response.Body = peekedBody{peeked, response.Body}
		}
		if !ok || (i > 0 && f != common) {
			return form{}, fmt.Errorf("cells answered with content that cannot be merged: %q", response.Header.Get("Content-Type"))
		}
		common = f
	}
	return common, nil
}

// tableHead begins every Table in JSON.
const tableHead = `{"kind":"Table",`

// peekedBody is a body of which some has been looked at.
type peekedBody struct {
	io.Reader
	io.Closer
}

// asStatus names the cell that a merge failed for.
func (a *answers) asStatus(c *call, err error) error {
	var source *splice.SourceError
	if errors.As(err, &source) && source.Source < len(a.cells) {
		return forward.Unreachable(c.view.Name(a.cells[source.Source]), source.Err)
	}
	return apierrors.NewInternalError(err)
}
