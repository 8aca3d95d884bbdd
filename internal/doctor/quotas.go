package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// usedWarning is the part of a quota from which on its use is told of.
const usedWarning = 0.9

// checkQuotas looks for quotas that are nearly used up. They are on the hub.
func (d *Doctor) checkQuotas(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	var federated policyv1alpha1.FederatedResourceQuotaList
	if err := d.hub.client.List(ctx, &federated); err != nil {
		return nil, fmt.Errorf("listing FederatedResourceQuotas: %w", err)
	}
	for i := range federated.Items {
		q := &federated.Items[i]
		findings = append(findings, used("FederatedResourceQuota "+q.Namespace+"/"+q.Name, q.Status.Overall, q.Status.OverallUsed)...)
	}
	var quotas corev1.ResourceQuotaList
	if err := d.hub.client.List(ctx, &quotas); err != nil {
		return findings, fmt.Errorf("listing ResourceQuotas: %w", err)
	}
	for i := range quotas.Items {
		q := &quotas.Items[i]
		findings = append(findings, used("ResourceQuota "+q.Namespace+"/"+q.Name, q.Status.Hard, q.Status.Used)...)
	}
	return findings, nil
}

func used(object string, limits, uses corev1.ResourceList) []Finding {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit, use := limits[name], uses[name]
		if limit.Sign() > 0 && use.AsApproximateFloat64() >= usedWarning*limit.AsApproximateFloat64() {
			parts = append(parts, fmt.Sprintf("%s of %s %s", use.String(), limit.String(), name))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []Finding{find(QuotaNearlyUsed, Warning, object, strings.Join(parts, ", ")+" are used")}
}
