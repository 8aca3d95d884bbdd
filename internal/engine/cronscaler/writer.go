package cronscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/scale"
)

// Rules returns the permissions that the controller needs through the gateway, in addition to those of autoscalers.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{autoscalingv1alpha1.GroupVersion.Group}, Resources: []string{"federatedhpas"}, Verbs: []string{"patch"}}}
}

// errTarget says that a target cannot be scaled.
var errTarget = errors.New("it cannot be scaled")

// writer sets replicas and limits through the gateway.
type writer struct {
	kinds      func(schema.GroupKind) *cell.Kind
	federation dynamic.Interface
}

// apply sets what a rule says.
func (w *writer) apply(ctx context.Context, of *autoscalingv1alpha1.CronFederatedHPA, rule *autoscalingv1alpha1.CronFederatedHPARule) error {
	ref := of.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return fmt.Errorf("the target has the version %q: %w", ref.APIVersion, errTarget)
	}
	key := cell.Key{Namespace: of.Namespace, Name: ref.Name}
	if gv.Group == autoscalingv1alpha1.GroupVersion.Group {
		if ref.Kind != "FederatedHPA" {
			return fmt.Errorf("the target is a %s: %w", ref.Kind, errTarget)
		}
		return w.limit(ctx, key, rule)
	}
	kind := w.kinds(gv.WithKind(ref.Kind).GroupKind())
	switch {
	case kind == nil || !kind.Namespaced:
		return fmt.Errorf("the federation has no kind %s in %s: %w", ref.Kind, ref.APIVersion, errTarget)
	case rule.TargetReplicas == nil:
		return fmt.Errorf("the rule has no targetReplicas: %w", errTarget)
	}
	return scale.Write(ctx, w.federation, kind, key, nil, *rule.TargetReplicas)
}

// limit sets the limits of a FederatedHPA. Those that the rule does not have stay.
func (w *writer) limit(ctx context.Context, key cell.Key, rule *autoscalingv1alpha1.CronFederatedHPARule) error {
	limits := map[string]int32{}
	if rule.TargetMinReplicas != nil {
		limits["minReplicas"] = *rule.TargetMinReplicas
	}
	if rule.TargetMaxReplicas != nil {
		limits["maxReplicas"] = *rule.TargetMaxReplicas
	}
	patch, err := json.Marshal(map[string]any{"spec": limits})
	if err != nil {
		return err
	}
	_, err = w.federation.Resource(autoscalingv1alpha1.GroupVersion.WithResource("federatedhpas")).Namespace(key.Namespace).
		Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: scale.FieldManager})
	return err
}
