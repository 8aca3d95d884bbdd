package gateway

import (
	"net/http"

	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/features"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/cellplane/cellplane/internal/gateway/agents"
	"github.com/cellplane/cellplane/internal/gateway/creation"
	"github.com/cellplane/cellplane/internal/gateway/protection"
	"github.com/cellplane/cellplane/internal/gateway/quotas"
	"github.com/cellplane/cellplane/internal/gateway/router"
	"github.com/cellplane/cellplane/internal/gateway/served"
	"github.com/cellplane/cellplane/internal/gateway/userpolicies"
	"github.com/cellplane/cellplane/internal/gateway/views"
)

// chain is the handler chain of kube-apiserver with the router as its last handler. It omits tracing and the latency metrics of each
// filter, which together cost more than routing. Deadlines need no goroutine per request (deadline.go).
func (c *Config) chain(own http.Handler, g *genericserver.Config) http.Handler {
	handler := c.withLimits(c.routing(own, g))
	handler = genericfilters.WithAuthorization(handler, g.Authorization.Authorizer, g.Serializer)
	handler = &served.Handler{Next: handler, APIs: c.served, IsLongRunning: isLongRunning}
	handler = withWatchSignal(handler)
	handler = withFairness(handler, g)
	if g.FeatureGate.Enabled(features.ConstrainedImpersonation) {
		handler = impersonation.WithConstrainedImpersonation(handler, g.Authorization.Authorizer, g.Serializer)
	} else {
		handler = impersonation.WithImpersonation(handler, g.Authorization.Authorizer, g.Serializer)
	}
	handler = genericfilters.WithAudit(handler, g.AuditBackend, g.AuditPolicyRuleEvaluator, g.LongRunningFunc)
	refused := genericfilters.WithFailedAuthenticationAudit(genericfilters.Unauthorized(g.Serializer), g.AuditBackend, g.AuditPolicyRuleEvaluator)
	handler = genericfilters.WithAuthentication(handler, g.Authentication.Authenticator, refused, g.Authentication.APIAudiences, g.Authentication.RequestHeaderConfig)
	handler = genericfilters.WithWarningRecorder(handler)
	handler = withDeadline(handler, g.LongRunningFunc)
	handler = genericfilters.WithRequestDeadline(handler, g.AuditBackend, g.AuditPolicyRuleEvaluator, g.LongRunningFunc, g.Serializer, g.RequestTimeout)
	handler = filters.WithWaitGroup(handler, g.LongRunningFunc, g.NonLongRunningRequestWaitGroup)
	handler = filters.WithWatchTerminationDuringShutdown(handler, c.stopping, g.WatchRequestWaitGroup)
	if g.GoawayChance > 0 {
		handler = filters.WithProbabilisticGoaway(handler, g.GoawayChance)
	}
	handler = genericfilters.WithCacheControl(handler)
	handler = filters.WithHTTPLogging(handler)
	handler = withMetrics(handler, g.LongRunningFunc)
	handler = genericfilters.WithRequestInfo(handler, g.RequestInfoResolver)
	handler = genericfilters.WithRequestReceivedTimestamp(handler)
	handler = filters.WithPanicRecovery(handler, g.RequestInfoResolver)
	handler = withAuditedSurface(handler)
	handler = genericfilters.WithAuditInit(handler)
	return withStack(c.withConsole(withSurface(handler)))
}

// withFairness limits the concurrent requests, by the hub's FlowSchemas if they are known.
func withFairness(next http.Handler, g *genericserver.Config) http.Handler {
	if g.FlowControl == nil {
		return filters.WithMaxInFlightLimit(next, g.MaxRequestsInFlight, g.MaxMutatingRequestsInFlight, g.LongRunningFunc)
	}
	estimator := flowcontrolrequest.NewWorkEstimator(g.StorageObjectCountTracker.Get, g.FlowControl.GetInterestedWatchCount,
		flowcontrolrequest.DefaultWorkEstimatorConfig(), g.FlowControl.GetMaxSeats)
	return filters.WithPriorityAndFairness(next, g.LongRunningFunc, g.FlowControl, estimator, g.RequestTimeout/4)
}

// routing returns the handlers of Cellplane: protection, the views of members, and the router.
func (c *Config) routing(own http.Handler, g *genericserver.Config) http.Handler {
	c.router.Own = own
	objects := router.Objects{Router: c.router, Hub: c.askHub}
	guard := &protection.Guard{
		Policies:   c.policies,
		Objects:    protection.Bounded(objects),
		Authorizer: g.Authorization.Authorizer,
		Records:    router.Records{Objects: objects},
	}
	policies := &userpolicies.Handler{Next: c.router, View: c.topology.View}
	counted := &quotas.Handler{Next: policies, Quotas: c.informers.Core().V1().ResourceQuotas().Lister(), Hub: c.hubClient.CoreV1()}
	guard.Next = c.memberViews(guard.Templates(counted), objects)
	ordinary := withReadableContentType(&agents.Works{Next: &views.Reports{Views: c.views, Next: &creation.Handler{Next: guard, Authorizer: g.Authorization.Authorizer}}})
	ordinary = &views.Tunnels{Views: c.views, Next: ordinary, Authenticator: g.Authentication.Authenticator, Authorizer: g.Authorization.Authorizer, Stopping: c.stopping}
	return &views.Search{Views: c.views, Next: ordinary, Authorizer: g.Authorization.Authorizer, Resolver: g.RequestInfoResolver}
}

// stopSignal is closed when the gateway accepts no more requests. Watches then end, and their clients reconnect to another replica.
type stopSignal chan struct{}

// ShuttingDown implements request.ServerShutdownSignal.
func (s stopSignal) ShuttingDown() <-chan struct{} { return s }
