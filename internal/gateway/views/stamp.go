package views

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/splice"
)

const (
	// shownWithin is how long the answer to a write waits until the cluster-gateway shows the change, which usually takes some milliseconds,
	// and readWithin how long that to a read does, which writes have waited for.
	shownWithin = 3 * time.Second
	readWithin  = 500 * time.Millisecond
	// answerTime is how long before the deadline of a request that wait ends.
	answerTime = time.Second
)

// answered lets a handler serve a request for an object of a destination, and puts the version under which the object is shown into the
// answer in place of the destination's.
//
// The change has been made when the wait begins. If it is not shown in time, the answer has the destination's version: the next write may use
// it, and a watch from it gets 410, after which clients list. An error would make them repeat the change, and a version that is not that of
// the change would let them overwrite another one.
func (v *Views) answered(w http.ResponseWriter, r *http.Request, to destination, next http.Handler) {
	if inner.Asks(r.Context()) || streams(r, to) {
		next.ServeHTTP(w, r)
		return
	}
	identity := r.Clone(r.Context())
	identity.Header.Del("Accept-Encoding") // the answer is read here
	answer := inner.Hold(next, identity)
	if answer.Code() < http.StatusMultipleChoices {
		if err := v.stamp(r, to, answer); err != nil {
			klog.FromContext(r.Context()).Info("an answer keeps its version: it cannot be read", "cluster", to.cluster, "err", err)
		}
	}
	answer.CopyTo(w)
}

// streams reports whether the answer to a request is no object.
func streams(r *http.Request, to destination) bool {
	switch to.info.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return r.Header.Get("Upgrade") != "" || to.info.Verb == "watch"
}

// stamp replaces the versions in an answer.
func (v *Views) stamp(r *http.Request, to destination, answer *inner.Answer) error {
	mediaType := mediaTypeOf(answer.Header().Get("Content-Type"))
	revision := revision{destination: to, name: to.info.Name, deleted: to.info.Verb == "delete"}
	// A Table has no name, and is of the object that the request names.
	if described, err := splice.ReadMetadata(mediaType, answer.Body()); err == nil && len(described.Name) > 0 {
		revision.name, revision.deleted = string(described.Name), revision.deleted || described.Deleting
	}
	shown := map[string]string{}
	body, err := splice.Stamp(mediaType, answer.Body(), func(version string) string {
		if _, known := shown[version]; !known {
			revision.version = version
			shown[version] = v.shownVersion(r.Context(), revision)
		}
		return shown[version]
	})
	if err != nil {
		return err
	}
	answer.Replace(body)
	return nil
}

// revision is a state of an object at its destination.
type revision struct {
	destination
	name, version string
	// deleted is set if it may be that of the object's deletion.
	deleted bool
}

func (o revision) query() url.Values {
	query := url.Values{"cluster": {o.cluster}, "version": {o.version}}
	if o.deleted {
		query.Set("deleted", "true")
	}
	return query
}

func (o revision) path() string {
	return o.under + collectionPath(o.info) + "/" + o.name + "/memberrevision"
}

// shownVersion waits until the cluster-gateway that the caller's requests go to shows a revision, and returns its version there. Of one that
// is not shown in time it returns the version of the destination.
func (v *Views) shownVersion(ctx context.Context, o revision) string {
	if o.name == "" {
		return o.version
	}
	reads := o.info.Verb == "get"
	wait := shownWithin
	if reads {
		wait = readWithin
	}
	if deadline, found := ctx.Deadline(); found {
		wait = min(wait, time.Until(deadline)-answerTime)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	expected := false
	for _, s := range v.shares {
		version, err := s.versionOf(waiting, callerOf(ctx), o)
		if err == nil {
			return version
		}
		expected = expected || !errors.Is(err, errUnshown) // others do not show the objects of a share
	}
	// Of the federation's own objects many are not shown, because members have such objects or the kind has none in views.
	if !reads && (o.cluster != "" || expected) {
		warning.AddWarning(ctx, "", "the change is made and not shown yet: its resourceVersion is that of "+o.where()+", with which the object can be changed and not watched")
	}
	return o.version
}

func (o revision) where() string {
	if o.cluster == "" {
		return "its template"
	}
	return "cluster " + o.cluster
}

var (
	errNoReplica = errors.New("no cluster-gateway is ready")
	// errUnshown is returned if a share does not show a revision, and is not about to.
	errUnshown = errors.New("not shown")
)

// versionOf asks the replica that serves the reads of a caller.
func (s *share) versionOf(ctx context.Context, caller string, o revision) (string, error) {
	err := errNoReplica
	for _, r := range s.choose(caller) {
		if !r.ready.Load() {
			continue
		}
		var version string
		if version, err = r.versionOf(ctx, o); err == nil || errors.Is(err, errUnshown) || ctx.Err() != nil {
			return version, err
		}
		// It is about to stop, and reads will go to the next one.
	}
	return "", err
}

func (r *replica) versionOf(ctx context.Context, o revision) (string, error) {
	response, err := r.upstream.RoundTrip(get(ctx, o.path(), o.query()))
	if err != nil {
		return "", err
	}
	if response.StatusCode == http.StatusNotFound {
		response.Body.Close()
		return "", errUnshown
	}
	var found struct {
		ResourceVersion string `json:"resourceVersion"`
	}
	err = readJSON(ctx, response, &found)
	return found.ResourceVersion, err
}

// withoutVersion returns a read without a version of the cache in its query. The destination does not know it, and shows its latest state.
func (v *Views) withoutVersion(r *http.Request) *http.Request {
	query := r.URL.Query()
	if _, ours := v.cacheVersions(query.Get("resourceVersion")); !ours || r.Method != http.MethodGet {
		return r
	}
	query.Del("resourceVersion")
	clone := *r
	clone.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: query.Encode()}
	return &clone
}
