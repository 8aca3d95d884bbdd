package router

import "context"

type surfaceKey struct{}

// WithFederationSurface marks a request as one for templates alone.
func WithFederationSurface(ctx context.Context) context.Context {
	return context.WithValue(ctx, surfaceKey{}, true)
}

// OnFederationSurface reports whether a request is for templates alone.
func OnFederationSurface(ctx context.Context) bool {
	federation, _ := ctx.Value(surfaceKey{}).(bool)
	return federation
}
