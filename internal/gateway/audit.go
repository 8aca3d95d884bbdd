package gateway

import (
	"fmt"
	"slices"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// strictPolicy checks that a strict back end can keep its promise: a request is refused if its first record cannot be written, so that
// there has to be a first record.
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
		return fmt.Errorf("the audit policy omits the stage %s for all requests, so that changes could not be refused when they cannot be recorded; keep the stage, or choose a mode that is not strict", auditinternal.StageRequestReceived)
	}
	for i, rule := range loaded.Rules {
		if omitsReceived(rule.OmitStages) && rule.Level != auditinternal.LevelNone && changes(rule.Verbs) {
			return fmt.Errorf("rule %d of the audit policy omits the stage %s for changes, so that they could not be refused when they cannot be recorded; keep the stage, or choose a mode that is not strict", i+1, auditinternal.StageRequestReceived)
		}
	}
	return nil
}

func omitsReceived(stages []auditinternal.Stage) bool {
	return slices.Contains(stages, auditinternal.StageRequestReceived)
}

// changes reports whether a rule for these verbs can be about a change.
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
