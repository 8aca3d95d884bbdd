package serve

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/cellplane/cellplane/internal/limits"
)

const (
	// listed is the memory for the position of an object in an open list.
	listed = 4
	// rawCopies, jsonCopies and textCopies are how often an object is in memory while it is written in protobuf, in JSON, and in YAML or
	// indented: compressed, decompressed, decoded and encoded.
	rawCopies, jsonCopies, textCopies = 4, 7, 10
	// retryStreams is after how many seconds a client that has too many watches should try again.
	retryStreams = 10
)

// copies is how often an object is in memory while it is written.
func (e *encoder) copies() int {
	switch {
	case e.isProtobuf() && e.convert == nil:
		return rawCopies
	case e.pretty || e.mediaType == runtime.ContentTypeYAML:
		return textCopies
	default:
		return jsonCopies
	}
}

// owner returns the user on whose behalf a gateway has sent a request. The gateway itself is exempt from limits.
func owner(r *http.Request) limits.Owner {
	name := r.Header.Get("X-Remote-User")
	if name == "" {
		return limits.Owner{Exempt: true}
	}
	return limits.OwnerOf(&user.DefaultInfo{Name: name, Groups: r.Header["X-Remote-Group"]})
}

// holder counts what a request holds in memory.
type holder struct{ ctx context.Context }

// hold counts bytes, except a few, and waits until they are available. The error can be written as it is.
func (h holder) hold(bytes int) error {
	if bytes <= limits.Free {
		return nil
	}
	err := limits.GrantFrom(h.ctx).Grow(h.ctx, int64(bytes))
	if errors.Is(err, limits.ErrExhausted) {
		return apierrors.NewTooManyRequests("your requests hold as much memory of the cluster-gateway as they may; "+
			"read the answers faster, send fewer requests at once, or ask for less with limit", 1)
	}
	return err
}

// release returns bytes that were counted with one call of hold.
func (h holder) release(bytes int) {
	if bytes > limits.Free {
		limits.GrantFrom(h.ctx).Shrink(int64(bytes))
	}
}
