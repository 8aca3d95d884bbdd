package thirdparty

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

// flux describes the kinds of the Flux toolkit, which are alike: they can be suspended, are ready or not, and report
// which revision they last saw.
type flux struct {
	// shown are the fields of the status of which the last member's stand for all.
	shown []string
	// summed are the fields of the status that add up.
	summed []string
	// refers are the fields that name a Secret or a ServiceAccount.
	refers []fluxReference
	// more finds references that are not in a plain field.
	more func(*podspec.References, *unstructured.Unstructured) error
}

type fluxReference struct {
	kind podspec.Kind
	path kinds.Path
}

func (f flux) kind() kinds.Kind {
	reported := append(append([]string{"conditions"}, f.shown...), f.summed...)
	return kinds.Kind{
		Retain:          kinds.RetainAt(kinds.Path{"spec", "suspend"}),
		AggregateStatus: kinds.Aggregate(f.merge),
		ReflectStatus:   kinds.ReflectObserved(reported...),
		Health:          fluxHealth,
		Dependencies:    f.dependencies,
	}
}

func fluxHealth(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	ready, _, err := kinds.Condition(obj, "Ready")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	return kinds.Healthy(ready == "True"), nil
}

func (f flux) merge(template *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	observed, err := kinds.ObservedGeneration(template, status, members)
	if err != nil {
		return err
	}
	status["observedGeneration"] = observed
	conditions, err := kinds.MergedConditions(members)
	if err != nil {
		return err
	}
	kinds.SetList(status, "conditions", conditions)
	last(status, members, f.shown...)
	return kinds.Sum(status, members, f.summed...)
}

func (f flux) dependencies(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	refs := podspec.References{Namespace: obj.GetNamespace()}
	for _, ref := range f.refers {
		if err := refs.AddField(ref.kind, obj.Object, ref.path...); err != nil {
			return nil, err
		}
	}
	if f.more != nil {
		if err := f.more(&refs, obj); err != nil {
			return nil, err
		}
	}
	return refs.List(), nil
}

var (
	fluxSecret     = fluxReference{podspec.Secret, kinds.Path{"spec", "secretRef", "name"}}
	fluxCert       = fluxReference{podspec.Secret, kinds.Path{"spec", "certSecretRef", "name"}}
	fluxProxy      = fluxReference{podspec.Secret, kinds.Path{"spec", "proxySecretRef", "name"}}
	fluxVerify     = fluxReference{podspec.Secret, kinds.Path{"spec", "verify", "secretRef", "name"}}
	fluxKubeConfig = fluxReference{podspec.Secret, kinds.Path{"spec", "kubeConfig", "secretRef", "name"}}
	fluxAccount    = fluxReference{podspec.ServiceAccount, kinds.Path{"spec", "serviceAccountName"}}

	kustomization = flux{
		shown:  []string{"lastAppliedRevision", "lastAttemptedRevision"},
		refers: []fluxReference{{podspec.Secret, kinds.Path{"spec", "decryption", "secretRef", "name"}}, fluxKubeConfig, fluxAccount},
		more: func(refs *podspec.References, obj *unstructured.Unstructured) error {
			return addByKind(refs, obj, "spec", "postBuild", "substituteFrom")
		},
	}.kind()

	helmRelease = flux{
		shown:  []string{"lastAppliedRevision", "lastAttemptedRevision", "lastAttemptedValuesChecksum", "lastAttemptedConfigDigest", "helmChart", "lastReleaseRevision"},
		summed: []string{"failures", "installFailures", "upgradeFailures"},
		refers: []fluxReference{{podspec.Secret, kinds.Path{"spec", "chart", "spec", "verify", "secretRef", "name"}}, fluxKubeConfig, fluxAccount},
		more: func(refs *podspec.References, obj *unstructured.Unstructured) error {
			return addByKind(refs, obj, "spec", "valuesFrom")
		},
	}.kind()

	gitRepository = flux{
		shown:  []string{"artifact", "observedIgnore", "observedRecurseSubmodules", "lastHandledReconcileAt"},
		refers: []fluxReference{fluxSecret, fluxProxy, fluxVerify},
	}.kind()

	ociRepository = flux{
		shown:  []string{"artifact", "url", "observedIgnore", "observedLayerSelector", "lastHandledReconcileAt"},
		refers: []fluxReference{fluxSecret, fluxCert, fluxProxy, fluxVerify, fluxAccount},
	}.kind()

	helmRepository = flux{
		shown:  []string{"artifact", "url", "lastHandledReconcileAt"},
		refers: []fluxReference{fluxSecret, fluxCert},
	}.kind()

	bucket = flux{
		shown:  []string{"artifact", "url", "observedIgnore", "lastHandledReconcileAt"},
		refers: []fluxReference{fluxSecret, fluxCert, fluxProxy, {podspec.Secret, kinds.Path{"spec", "sts", "secretRef", "name"}}},
	}.kind()

	helmChart = flux{
		shown:  []string{"artifact", "url", "observedChartName", "observedSourceArtifactRevision", "lastHandledReconcileAt"},
		refers: []fluxReference{fluxVerify},
	}.kind()
)

// addByKind adds references that come as a list of kind and name.
func addByKind(refs *podspec.References, obj *unstructured.Unstructured, path ...string) error {
	list, err := fields.Objects(obj.Object, path...)
	if err != nil {
		return err
	}
	for _, entry := range list {
		name, _, err := fields.String(entry, "name")
		if err != nil {
			return err
		}
		switch entry["kind"] {
		case "Secret":
			refs.Add(podspec.Secret, name)
		case "ConfigMap":
			refs.Add(podspec.ConfigMap, name)
		}
	}
	return nil
}
