package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/render"
)

// keepEntry makes the federation want what an open object is like, then closes it. If the object or what the federation wants changes meanwhile, it starts
// anew. Nothing is written to the object before the engine has rendered it without a difference.
func keepEntry(ctx context.Context, out io.Writer, flags *entryFlags, o *memberObject, timeout time.Duration) error {
	a, err := openAdoption(ctx, &adoptFlags{gatewayFlags: flags.gatewayFlags, namespace: flags.namespace, clusters: []string{flags.cluster}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	item := &adopt.Item{Key: adopt.KeyOf(o.live)}
	name := names.EntryOverrideName(item.Key.Kind, item.Key.Name, flags.cluster)
	last := fmt.Errorf("the federation has no Work for %s", o)
	written := "" // the manifest for which the override was written
	err = wait.PollUntilContextCancel(ctx, adoptionPoll, true, func(ctx context.Context) (bool, error) {
		if err := o.read(ctx, o.live.GetName()); err != nil {
			return false, err
		}
		manifest, err := a.rendered(ctx, item, flags.cluster)
		if err != nil || manifest == nil {
			return false, err
		}
		overriders, fields, err := a.differences(ctx, manifest, o.live)
		switch {
		case err != nil:
			return false, err
		case len(fields) == 0:
			err := o.annotate(ctx, entry.Closed())
			if apierrors.IsConflict(err) {
				return false, nil
			}
			return err == nil, err
		}
		last = fmt.Errorf("the engine has not rendered OverridePolicy %s yet, %s would still change; the entry stays open", name, fields[0])
		if version := manifest.GetAnnotations()[merge.FingerprintAnnotation] + " " + fmt.Sprint(fields); version != written {
			if err := a.addOverride(ctx, name, item.Key, flags.cluster, overriders); err != nil {
				return false, err
			}
			written = version
			for _, field := range fields {
				fmt.Fprintf(out, "OverridePolicy %s keeps %s.\n", name, field)
			}
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		return last
	}
	return err
}

// differences returns the overriders that keep an object of a member as it is, and the fields they are about.
func (a *adoption) differences(ctx context.Context, manifest, live *unstructured.Unstructured) (policyv1alpha1.Overriders, []string, error) {
	resource, err := a.resource(manifest.GroupVersionKind())
	if err != nil {
		return policyv1alpha1.Overriders{}, nil, err
	}
	merger, err := a.mergers.of(ctx, resource, manifest.GroupVersionKind())
	if err != nil {
		return policyv1alpha1.Overriders{}, nil, err
	}
	merged, _, err := render.Merge(ctx, a.interpreters, merger, live, manifest)
	if err != nil {
		return policyv1alpha1.Overriders{}, nil, err
	}
	return adopt.Keep(a.interpreters, manifest, merged, live)
}

// addOverride adds a rule for a cluster to the override of that name. Its rules are applied in their order.
func (a *adoption) addOverride(ctx context.Context, name string, key adopt.Key, cluster string, overriders policyv1alpha1.Overriders) error {
	rule := policyv1alpha1.RuleWithCluster{TargetCluster: &policyv1alpha1.ClusterAffinity{ClusterNames: []string{cluster}}, Overriders: overriders}
	apiVersion, kind := key.ToAPIVersionAndKind()
	override := &policyv1alpha1.OverridePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1alpha1.GroupVersion.String(), Kind: "OverridePolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name},
		Spec: policyv1alpha1.OverrideSpec{
			ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: apiVersion, Kind: kind, Namespace: key.Namespace, Name: key.Name}},
			OverrideRules:     []policyv1alpha1.RuleWithCluster{rule},
		},
	}
	found, err := a.createOrGet(ctx, override)
	if err != nil || !found {
		return err
	}
	before := override.DeepCopy()
	override.Spec.OverrideRules = append(override.Spec.OverrideRules, rule)
	if err := a.client.Patch(ctx, override, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding to OverridePolicy %s: %w", name, err)
	}
	return nil
}
