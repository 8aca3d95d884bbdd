package router

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// answers are the cells' answers to a list, in the order of their indexes.
type answers struct {
	cells     []slots.Index
	responses []*http.Response
}

// refused returns the first answer that is not a list. All cells got the same request, so one refusal stands for all.
func (a *answers) refused() *http.Response {
	for _, response := range a.responses {
		if response.StatusCode != http.StatusOK {
			return response
		}
	}
	return nil
}

// form returns the common form of all answers. The content type does not distinguish Tables from other objects, but the first bytes do.
func (a *answers) form() (form, error) {
	var common form
	for i, response := range a.responses {
		f, ok := formOf(response.Header.Get("Content-Type"))
		if ok && f.encoding == splice.JSON {
			peeked := bufio.NewReaderSize(response.Body, 4<<10)
			head, _ := peeked.Peek(longestTableHead) // an error will come up again in the merge
			f.table = tableHead.Match(head)
			response.Body = peekedBody{peeked, response.Body}
		}
		if !ok || (i > 0 && f != common) {
			return form{}, fmt.Errorf("cannot merge answers with the content type %q", response.Header.Get("Content-Type"))
		}
		common = f
	}
	return common, nil
}

// tableHead begins every Table in JSON. API servers indent what they send to browsers and curl.
var tableHead = regexp.MustCompile(`^\{\s*"kind":\s*"Table",`)

// longestTableHead is more than a Table begins with, and less than any list has.
const longestTableHead = 32

// peekedBody is a body that was partly read ahead.
type peekedBody struct {
	io.Reader
	io.Closer
}

// asStatus names the cell that a merge failed for.
func (a *answers) asStatus(c *call, err error) error {
	var source *splice.SourceError
	if errors.As(err, &source) && source.Source < len(a.cells) {
		return forward.Unread(c.view.Name(a.cells[source.Source]), source.Err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
