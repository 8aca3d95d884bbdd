package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

const (
	aggregatedAccept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	// maxDocument bounds a discovery document: a thousand CustomResourceDefinitions make about one megabyte.
	maxDocument = 64 << 20
)

// source has the discovery documents of one API server.
type source struct {
	upstream *fleet.Upstream
	etags    [2]string
	docs     *documents
	changed  bool
	err      error
}

// refresh reads the documents if they have changed. If the API server does not answer, the last ones stay.
func (s *source) refresh(ctx context.Context) {
	s.changed, s.err = false, nil
	next := documents{}
	if s.docs != nil {
		next = *s.docs
	}
	for i, part := range []struct {
		path string
		into *apidiscoveryv2.APIGroupDiscoveryList
	}{{"/api", &next.Core}, {"/apis", &next.Groups}} {
		changed, etag, err := s.get(ctx, part.path, s.etags[i], part.into)
		if err != nil {
			s.err = fmt.Errorf("reading discovery of %s: %w", s.upstream.Name(), err)
			s.etags = [2]string{} // the documents may be inconsistent
			s.changed = false
			return
		}
		s.changed = s.changed || changed
		s.etags[i] = etag
	}
	if s.changed {
		s.docs = &next
	}
}

func (s *source) get(ctx context.Context, path, etag string, into *apidiscoveryv2.APIGroupDiscoveryList) (changed bool, newETag string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://upstream"+path, nil)
	if err != nil {
		return false, "", err
	}
	forward.AsGateway(request, forward.Hub)
	request.Header.Set("Accept", aggregatedAccept)
	if etag != "" {
		request.Header.Set("If-None-Match", etag)
	}
	response, err := s.upstream.RoundTrip(request)
	if err != nil {
		return false, "", err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusNotModified:
		return false, etag, nil
	case http.StatusOK:
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.NewDecoder(io.LimitReader(response.Body, maxDocument)).Decode(&list); err != nil {
			return false, "", err
		}
		*into = list
		return true, response.Header.Get("ETag"), nil
	default:
		return false, "", fmt.Errorf("%s answered %s", path, response.Status)
	}
}
