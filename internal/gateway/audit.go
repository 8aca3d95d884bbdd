package gateway

import (
	"fmt"
	"net/http"
	"slices"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/cellplane/cellplane/internal/gateway/router"
)

// strictPolicy checks the audit policy of a strict back end. Such a back end refuses a request whose first record cannot be written, so
// the policy must not omit that record.
func strictPolicy(o *genericoptions.AuditOptions) error {
	strict := o.LogOptions.Path != "" && o.LogOptions.BatchOptions.Mode == genericoptions.ModeBlockingStrict ||
		o.WebhookOptions.ConfigFile != "" && o.WebhookOptions.BatchOptions.Mode == genericoptions.ModeBlockingStrict
	if !strict || o.PolicyFile == "" {
		return nil
	}
	loaded, err := policy.LoadPolicyFromFile(o.PolicyFile)
	if err != nil {
		return fmt.Errorf("reading --audit-policy-file: %w", err)
	}
	if omitsReceived(loaded.OmitStages) {
		return fmt.Errorf("the audit policy omits the stage %s for all requests, so changes that cannot be recorded would not be refused; keep the stage, or choose a mode that is not strict", auditinternal.StageRequestReceived)
	}
	for i, rule := range loaded.Rules {
		if omitsReceived(rule.OmitStages) && rule.Level != auditinternal.LevelNone && changes(rule.Verbs) {
			return fmt.Errorf("rule %d of the audit policy omits the stage %s for changes, so changes that cannot be recorded would not be refused; keep the stage, or choose a mode that is not strict", i+1, auditinternal.StageRequestReceived)
		}
	}
	return nil
}

// surfaceAnnotation is the audit annotation with the surface of a request. The path in a record has no prefix: it is the path that is
// authorized.
const surfaceAnnotation = "cellplane.io/surface"

// withAuditedSurface writes the surface of a request to its audit record.
func withAuditedSurface(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		surface := "cluster"
		if router.OnFederationSurface(r.Context()) {
			surface = "federation"
		}
		audit.AddAuditAnnotation(r.Context(), surfaceAnnotation, surface)
		next.ServeHTTP(w, r)
	})
}

func omitsReceived(stages []auditinternal.Stage) bool {
	return slices.Contains(stages, auditinternal.StageRequestReceived)
}

// changes reports whether a rule for these verbs can match a change.
func changes(verbs []string) bool {
	if len(verbs) == 0 {
		return true
	}
	for _, verb := range verbs {
		switch verb {
		case "get", "list", "watch":
		default:
			return true
		}
	}
	return false
}
