package ingest

import (
	"context"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Target is a connection to a member.
type Target struct {
	Client *http.Client
	Base   *url.URL
}

// Get sends a GET request to the member.
func (t Target) Get(ctx context.Context, path string, query url.Values, header http.Header) (*http.Response, error) {
	at := *t.Base
	at.Path += path
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header = header
	response, err := t.Client.Do(request)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	return response, nil
}
