package fanout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Target is an API server behind the host of a Transport.
type Target struct {
	// Name is shown in the column CLUSTER.
	Name string
	// Prefix is what the paths of the API server begin with.
	Prefix string
	// Member tells a member from the federation itself.
	Member bool
}

// Transport sends reads to all targets and merges the answers. A target that fails is reported, and the others are shown.
type Transport struct {
	// Base sends the requests.
	Base http.RoundTripper
	// Targets are asked at once. Their order is that of the merged answer.
	Targets []Target
	// Failed is called for each target that fails beside others that do not. It is never called twice at a time.
	Failed func(error)

	mu      sync.Mutex
	headers map[string]header // by the path of a collection
}

var requests = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	info, err := requests.NewRequestInfo(r)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Method != http.MethodGet || !info.IsResourceRequest:
		return respond(r, failure(apierrors.NewBadRequest(fmt.Sprintf("%s %s cannot be sent to several clusters; choose one with -C", r.Method, r.URL.Path))))
	case info.Verb == "watch":
		return t.watch(r, info)
	default:
		return respond(r, t.read(r, info))
	}
}

// answer is what a target, or all of them, have answered: a body, or an error.
type answer struct {
	target Target
	body   []byte
	err    *apierrors.StatusError
}

func failure(err *apierrors.StatusError) answer { return answer{err: err} }

// read asks all targets and merges the answers.
func (t *Transport) read(r *http.Request, info *request.RequestInfo) answer {
	answers := make([]answer, len(t.Targets))
	var all sync.WaitGroup
	for i, target := range t.Targets {
		all.Go(func() { answers[i] = t.ask(r, info, target) })
	}
	all.Wait()
	if len(answers) == 1 && answers[0].err != nil {
		return answers[0]
	}
	var good []answer
	var missing *apierrors.StatusError
	for _, a := range answers {
		switch {
		case a.err == nil:
			good = append(good, a)
		case isMissing(a.err, info):
			missing = a.err
		default:
			t.fail(a.err)
		}
	}
	switch {
	case len(good) > 0:
		return t.merge(good, r.URL.Path, info)
	case missing != nil:
		return failure(missing)
	default:
		return failure(apierrors.NewServiceUnavailable("no cluster has answered"))
	}
}

// isMissing reports whether a cluster knows the kind, and does not have the object.
func isMissing(err *apierrors.StatusError, info *request.RequestInfo) bool {
	details := err.Status().Details
	return info.Verb == "get" && apierrors.IsNotFound(err) && details != nil && details.Name == info.Name
}

func (t *Transport) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Failed(err)
}

// ask asks one target. Lists are not paged: all clusters would have to agree on the pages.
func (t *Transport) ask(r *http.Request, info *request.RequestInfo, target Target) answer {
	response, err := t.send(r.Context(), r, target, map[string]string{"limit": ""})
	if err != nil {
		return answer{target: target, err: unreachable(target, err)}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return answer{target: target, err: unreachable(target, err)}
	case response.StatusCode != http.StatusOK:
		return answer{target: target, err: refusal(target, info, response.StatusCode, body)}
	default:
		return answer{target: target, body: body}
	}
}

// send sends a request to a target with other parameters. An empty value removes one.
func (t *Transport) send(ctx context.Context, r *http.Request, target Target, parameters map[string]string) (*http.Response, error) {
	own := r.Clone(ctx)
	own.URL.Path, own.URL.RawPath = target.Prefix+r.URL.Path, ""
	query := own.URL.Query()
	for name, value := range parameters {
		if query.Del(name); value != "" {
			query.Set(name, value)
		}
	}
	own.URL.RawQuery = query.Encode()
	return t.Base.RoundTrip(own)
}

func unreachable(target Target, err error) *apierrors.StatusError {
	return apierrors.NewServiceUnavailable(about(target, "cannot be reached: "+err.Error()))
}

// refusal makes one sentence of an error of a target.
func refusal(target Target, info *request.RequestInfo, code int, body []byte) *apierrors.StatusError {
	status := metav1.Status{}
	if err := json.Unmarshal(body, &status); err != nil || status.Kind != "Status" {
		status = metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: strings.TrimSpace(string(body))} //nolint:gosec // a status code
	}
	err := &apierrors.StatusError{ErrStatus: status}
	if isMissing(err, info) {
		return err
	}
	if unregistered := status.Details != nil && status.Details.Kind == "clusters"; code == http.StatusNotFound && !unregistered {
		resource := strings.TrimSuffix(info.Resource+"."+info.APIGroup, ".")
		err.ErrStatus.Message = about(target, fmt.Sprintf("does not have the resource %s in version %s", resource, info.APIVersion))
		return err
	}
	if !strings.HasPrefix(status.Message, "cluster "+target.Name+" ") {
		err.ErrStatus.Message = about(target, "answers: "+status.Message)
	}
	return err
}

// about begins a sentence with the name of a target.
func about(target Target, text string) string {
	if !target.Member {
		return "the federation " + text
	}
	return "cluster " + target.Name + " " + text
}

// respond makes a response of an answer.
func respond(r *http.Request, a answer) (*http.Response, error) {
	code, body := http.StatusOK, a.body
	if a.err != nil {
		status := a.err.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		code = int(status.Code)
		var err error
		if body, err = json.Marshal(status); err != nil {
			return nil, err
		}
	}
	return newResponse(r, code, io.NopCloser(bytes.NewReader(body))), nil
}

func newResponse(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1, Request: r,
	}
}

var errFormat = errors.New("answers in another format than the others")
