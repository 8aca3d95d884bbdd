package router

import "context"

type surfaceKey struct{}

// WithFederationSurface marks a request as one for templates only.
func WithFederationSurface(ctx context.Context) context.Context {
	return context.WithValue(ctx, surfaceKey{}, true)
}

// OnFederationSurface reports whether a request is for templates only.
func OnFederationSurface(ctx context.Context) bool {
	federation, _ := ctx.Value(surfaceKey{}).(bool)
	return federation
}
