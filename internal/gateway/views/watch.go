package views

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

// watch answers with what the cluster-gateways tell.
func (v *Views) watch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if len(v.shares) == 1 {
		v.readFirst(&eventWriter{ResponseWriter: w}, r, info)
		return
	}
	c := &contest{shares: v.shares, r: r, info: info}
	merged := r.Clone(r.Context())
	merged.Header.Set(views.ContestedHeader, "true")
	if query := merged.URL.Query(); query.Get("includeObject") == string(metav1.IncludeNone) {
		// What is contested is known by the objects. They are left out here.
		query.Set("includeObject", string(metav1.IncludeMetadata))
		merged.URL.RawQuery = query.Encode()
		c.omitObjects = true
	}
	v.Merged.ServeHTTP(&eventWriter{ResponseWriter: w, change: c.settle}, merged)
}

// contest settles which object is shown of those that clusters of different shares have under one name. Each share knows of all, but hears of them at its
// own time: what one tells may be out of date in another. When an object comes or goes in the one's view whose name others have, the one says so
// instead of telling of the object, and all are asked what they show by then. As each says so whenever its view changes, the last answer is right, and
// nobody hears that an object is gone after having heard of the one that took its place.
type contest struct {
	shares      []*share
	r           *http.Request
	info        *request.RequestInfo
	omitObjects bool
}

// settle returns what the client is told instead of an event of the merged watch.
func (c *contest) settle(frame []byte, encoding splice.Encoding) ([]byte, error) {
	suspected := bytes.Contains(frame, []byte(names.ContestedAnnotation))
	if !suspected && !c.omitObjects {
		return frame, nil
	}
	event, err := splice.ParseEvent(unframed(frame, encoding), encoding)
	if err != nil {
		return nil, err
	}
	version := event.Object.ResourceVersion
	if suspected && event.Object.Annotation(names.ContestedAnnotation) != "" {
		shown, err := c.shown(event)
		if err != nil {
			return nil, err
		}
		if shown != nil {
			event = shown
		}
	}
	if c.omitObjects {
		return event.AppendWithoutObjects(nil, version), nil
	}
	return event.Append(nil, version), nil
}

// shown asks all shares for the object that is shown under the name of an event's. It is nil if there is none.
func (c *contest) shown(event *splice.Event) (*splice.Event, error) {
	at, err := position.Parse(event.Object.ResourceVersion)
	if err != nil || len(at.Versions) != len(c.shares) {
		return nil, fmt.Errorf("%s is contested at a position that is not one of these shares", event.Object.Key())
	}
	for i, s := range c.shares {
		shown, err := c.ask(s, at.Versions[i], event)
		if shown != nil || err != nil {
			return shown, err
		}
	}
	return nil, nil
}

// ask asks the replica of a share that has told of a version, or whichever is as far.
func (c *contest) ask(s *share, version uint64, event *splice.Event) (*splice.Event, error) {
	info := *c.info
	info.Namespace = event.Object.Namespace
	given := c.r.URL.Query()
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {string(metav1.ResourceVersionMatchNotOlderThan)},
		"resourceVersion": {strconv.FormatUint(version, 10)}, "timeoutSeconds": {"10"},
		"fieldSelector": {strings.TrimPrefix(given.Get("fieldSelector")+",metadata.name="+event.Object.Name, ",")}, "labelSelector": given["labelSelector"],
	}
	if include := given.Get("includeObject"); include != "" && !c.omitObjects {
		query.Set("includeObject", include)
	}
	failure := errors.New("there is no replica")
	for _, r := range s.choose(callerOf(c.r.Context())) {
		shown, err := c.first(r, collectionPath(&info), query)
		if err == nil {
			return shown, nil
		}
		failure = err
	}
	return nil, fmt.Errorf("looking up which %s %s is shown: %w", c.info.Resource, event.Object.Key(), failure)
}

// first returns the first event of a watch that begins with everything, or nil if there is nothing.
func (c *contest) first(r *replica, path string, query url.Values) (*splice.Event, error) {
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	request := get(ctx, path, query)
	request.Header.Set("Accept", c.r.Header.Get("Accept"))
	response, err := r.upstream.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", r.upstream.Name(), response.Status)
	}
	events := splice.NewEventReader(response.Body, encodingOf(response.Header), 0)
	for {
		event, err := events.Next()
		switch {
		case err != nil:
			return nil, errors.Join(err, io.ErrUnexpectedEOF)
		case event.Type == splice.Error:
			return nil, fmt.Errorf("%s answers %d %s", r.upstream.Name(), event.Code, event.Reason)
		case event.Type == splice.Bookmark && event.InitialEventsEnd:
			return nil, nil
		case event.Type == splice.Added:
			return event, nil
		}
	}
}
