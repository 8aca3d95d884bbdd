package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// push sends a finished image and its SBOMs to a repository below a prefix. The tag comes last: it never names something
// that is incomplete.
func push(ctx context.Context, b *built, prefix string) error {
	repository, err := name.NewRepository(prefix + "/" + b.program.name)
	if err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	if err := pushTo(ctx, b, repository); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var answer *transport.Error
		if errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) {
			return fmt.Errorf("pushing %s: %s refuses the credentials for it; log in to the registry first, for example with `docker login`: %w", b.program.name, repository.RegistryStr(), err)
		}
		return fmt.Errorf("pushing %s to %s: %w", b.program.name, repository, err)
	}
	return nil
}

func pushTo(ctx context.Context, b *built, repository name.Repository) error {
	index, referrers, err := readLayout(b.path)
	if err != nil {
		return err
	}
	pusher, err := remote.NewPusher(remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx), remote.WithUserAgent("cellplane-images"))
	if err != nil {
		return err
	}
	for _, done := range b.images {
		image, err := index.Image(done.digest)
		if err != nil {
			return err
		}
		if err := pusher.Push(ctx, repository.Digest(done.digest.String()), image); err != nil {
			return err
		}
	}
	for _, referrer := range referrers {
		digest, err := referrer.Digest()
		if err != nil {
			return err
		}
		if err := pusher.Push(ctx, repository.Digest(digest.String()), referrer); err != nil {
			return err
		}
	}
	return pusher.Push(ctx, repository.Tag(b.tag), index)
}

// imagePrefix matches a registry and a path in it. A registry has a dot or a port, or is called localhost.
var imagePrefix = regexp.MustCompile(`^(localhost|[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9-]+:[0-9]+)(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

// checkPrefix returns an error if images cannot be named below the value of a flag.
func checkPrefix(flag, prefix string) error {
	if !imagePrefix.MatchString(prefix) {
		return fmt.Errorf("%s: %q is not a registry with a path in lower case, such as registry.example.com/cellplane", flag, prefix)
	}
	return nil
}

// readLayout returns the image index of a layout, and the other manifests, which refer to its images.
func readLayout(path layout.Path) (index v1.ImageIndex, referrers []v1.Image, err error) {
	root, err := path.ImageIndex()
	if err != nil {
		return nil, nil, err
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return nil, nil, err
	}
	for _, descriptor := range manifest.Manifests {
		if descriptor.MediaType.IsIndex() {
			if index, err = root.ImageIndex(descriptor.Digest); err != nil {
				return nil, nil, err
			}
			continue
		}
		referrer, err := root.Image(descriptor.Digest)
		if err != nil {
			return nil, nil, err
		}
		referrers = append(referrers, referrer)
	}
	if index == nil {
		return nil, nil, errors.New("the layout has no image index")
	}
	return index, referrers, nil
}
