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
// nobody hears that an object is gone after having heard of the one that took its place. Several answers may be the same: the client hears of it once.
type contest struct {
	shares      []*share
	r           *http.Request
	info        *request.RequestInfo
	omitObjects bool
	// told is what the client has last heard of names that were contested; the zero value that there is nothing.
	told map[string]telling
}

// telling is what tells one state of an object from others.
type telling struct{ uid, version, staleSince string }

// mostTold bounds how many names a watch remembers. Of one that is forgotten a client may hear something twice.
const mostTold = 256

func tellingOf(event *splice.Event) telling {
	if event.Type == splice.Deleted {
		return telling{}
	}
	return telling{event.Object.UID, event.Object.Annotation(names.MemberVersionAnnotation), event.Object.Annotation(names.StaleSinceAnnotation)}
}

// before tells whether the client has heard of a later state of the same object. Versions of one object are those of its member, and grow.
func (t telling) before(later telling) bool {
	if t.uid == "" || t.uid != later.uid {
		return false
	}
	mine, err := strconv.ParseUint(t.version, 10, 64)
	theirs, errLater := strconv.ParseUint(later.version, 10, 64)
	return err == nil && errLater == nil && mine < theirs
}

// note remembers what the client hears of a name, and tells whether that is news.
func (c *contest) note(key string, now telling) bool {
	if last, known := c.told[key]; known && (last == now || now.before(last)) {
		return false
	}
	if c.told == nil {
		c.told = map[string]telling{}
	}
	if _, known := c.told[key]; !known && len(c.told) >= mostTold {
		for other := range c.told {
			delete(c.told, other)
			break
		}
	}
	c.told[key] = now
	return true
}

// settle returns what the client is told instead of an event of the merged watch; nothing if it has been told.
func (c *contest) settle(frame []byte, encoding splice.Encoding) ([]byte, error) {
	suspected := bytes.Contains(frame, []byte(names.ContestedAnnotation))
	if !suspected && !c.omitObjects && len(c.told) == 0 {
		return frame, nil
	}
	event, err := splice.ParseEvent(unframed(frame, encoding), encoding)
	if err != nil {
		return nil, err
	}
	version, contested := event.Object.ResourceVersion, suspected && event.Object.Annotation(names.ContestedAnnotation) != ""
	if contested {
		shown, err := c.shown(event)
		if err != nil {
			return nil, err
		}
		if shown != nil {
			event = shown
		}
	}
	if event.Type == splice.Added || event.Type == splice.Modified || event.Type == splice.Deleted {
		key := event.Object.Key()
		last, remembered := c.told[key]
		if event.Type == splice.Deleted && !contested && last.uid != "" && last.uid != event.Object.UID {
			return nil, nil // the client has another by now
		}
		if (contested || remembered) && !c.note(key, tellingOf(event)) {
			return nil, nil
		}
	}
	switch {
	case c.omitObjects:
		return event.AppendWithoutObjects(nil, version), nil
	case contested:
		return event.Append(nil, version), nil
	default:
		return frame, nil
	}
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
