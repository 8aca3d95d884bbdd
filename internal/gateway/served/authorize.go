package served

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Authorize returns an error if the user of a context may not send a request: because no ServedAPI lists it, or because the authorizer does not
// allow it. It is for requests that stand behind another one, which the handler chain has authorized. The error can be sent to the client.
func Authorize(ctx context.Context, rules authorizer.Authorizer, info *request.RequestInfo) error {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if limit := From(ctx); info.IsResourceRequest && limit != nil && !limit.Allows(resource, info.Subresource, info.Verb) {
		return apierrors.NewMethodNotSupported(resource, info.Verb)
	}
	ctx = request.WithRequestInfo(ctx, info)
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	decision, reason, err := rules.Authorize(ctx, attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(err)
	default:
		return responsewriters.ForbiddenStatusError(attributes, reason)
	}
}
