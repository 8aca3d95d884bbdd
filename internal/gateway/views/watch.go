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

// watch serves a watch, merged over all shares.
func (v *Views) watch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if len(v.shares) == 1 {
		v.readFirst(&eventWriter{ResponseWriter: w}, r, info)
		return
	}
	c := &contest{shares: v.shares, r: r, info: info}
	merged := r.Clone(r.Context())
	merged.Header.Set(views.ContestedHeader, "true")
	if query := merged.URL.Query(); query.Get("includeObject") == string(metav1.IncludeNone) {
		// Contested events are recognized by their objects, which are removed afterwards.
		query.Set("includeObject", string(metav1.IncludeMetadata))
		merged.URL.RawQuery = query.Encode()
		c.omitObjects = true
	}
	v.Merged.ServeHTTP(&eventWriter{ResponseWriter: w, change: c.resolve}, merged)
}

// contest decides which object a watch shows if clusters of different shares have objects of one name. Each share knows all of them, but
// learns of changes at its own time. So when a contested object appears in or leaves the view of a share, the share marks the event as
// contested, and the contest asks all shares what they show now. As each share does so on every change of its view, the last answer is
// right, and no client gets a deletion after the object that took its place. Equal answers are sent once.
type contest struct {
	shares      []*share
	r           *http.Request
	info        *request.RequestInfo
	omitObjects bool
	// sent is the last state of contested names that the client got; the zero value is a deletion.
	sent map[string]sentState
}

// sentState identifies a state of an object.
type sentState struct{ uid, version, staleSince string }

// maxSent bounds the names that a watch remembers. Of a forgotten one a client may get an event twice.
const maxSent = 256

func stateOf(event *splice.Event) sentState {
	if event.Type == splice.Deleted {
		return sentState{}
	}
	return sentState{event.Object.UID, event.Object.Annotation(names.MemberVersionAnnotation), event.Object.Annotation(names.StaleSinceAnnotation)}
}

// before reports whether a state is older than another one of the same object. The versions are those of its member, and grow.
func (t sentState) before(later sentState) bool {
	if t.uid == "" || t.uid != later.uid {
		return false
	}
	mine, err := strconv.ParseUint(t.version, 10, 64)
	theirs, errLater := strconv.ParseUint(later.version, 10, 64)
	return err == nil && errLater == nil && mine < theirs
}

// note stores the state that the client gets of a name, and reports whether it is new.
func (c *contest) note(key string, now sentState) bool {
	if last, known := c.sent[key]; known && (last == now || now.before(last)) {
		return false
	}
	if c.sent == nil {
		c.sent = map[string]sentState{}
	}
	if _, known := c.sent[key]; !known && len(c.sent) >= maxSent {
		for other := range c.sent {
			delete(c.sent, other)
			break
		}
	}
	c.sent[key] = now
	return true
}

// resolve returns the frame to send in place of an event of the merged watch; nothing if the client has got that state.
func (c *contest) resolve(frame []byte, encoding splice.Encoding) ([]byte, error) {
	suspected := bytes.Contains(frame, []byte(names.ContestedAnnotation))
	if !suspected && !c.omitObjects && len(c.sent) == 0 {
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
		last, remembered := c.sent[key]
		if event.Type == splice.Deleted && !contested && last.uid != "" && last.uid != event.Object.UID {
			return nil, nil // the client has got another object since
		}
		if (contested || remembered) && !c.note(key, stateOf(event)) {
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

// shown asks all shares for the object that they show under the name of an event's object; nil if there is none.
func (c *contest) shown(event *splice.Event) (*splice.Event, error) {
	at, err := position.Parse(event.Object.ResourceVersion)
	if err != nil || len(at.Versions) != len(c.shares) {
		return nil, fmt.Errorf("%s is contested at a position with a different number of shares", event.Object.Key())
	}
	for i, s := range c.shares {
		shown, err := c.ask(s, at.Versions[i], event)
		if shown != nil || err != nil {
			return shown, err
		}
	}
	return nil, nil
}

// ask asks a replica of a share that has reached a version.
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
	failure := errors.New("the share has no replica")
	for _, r := range s.choose(callerOf(c.r.Context())) {
		shown, err := c.first(r, collectionPath(&info), query)
		if err == nil {
			return shown, nil
		}
		failure = err
	}
	return nil, fmt.Errorf("looking up which %s %s is shown: %w", c.info.Resource, event.Object.Key(), failure)
}

// first returns the first initial event of a watch, nil if there is none.
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
		return nil, fmt.Errorf("%s answered %s", r.upstream.Name(), response.Status)
	}
	events := splice.NewEventReader(response.Body, encodingOf(response.Header), 0)
	for {
		event, err := events.Next()
		switch {
		case err != nil:
			return nil, errors.Join(err, io.ErrUnexpectedEOF)
		case event.Type == splice.Error:
			return nil, fmt.Errorf("%s answered %d %s", r.upstream.Name(), event.Code, event.Reason)
		case event.Type == splice.Bookmark && event.InitialEventsEnd:
			return nil, nil
		case event.Type == splice.Added:
			return event, nil
		}
	}
}
