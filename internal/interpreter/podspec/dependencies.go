package podspec

import (
	"slices"
	"strings"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// Dependencies returns the objects of a namespace that a pod of this spec refers to: ConfigMaps, Secrets,
// a ServiceAccount and PersistentVolumeClaims, in that order, each sorted by name and without duplicates.
func Dependencies(spec map[string]any, namespace string) ([]configv1alpha1.DependentObjectReference, error) {
	refs := References{Namespace: namespace}
	if err := refs.AddPod(spec); err != nil {
		return nil, err
	}
	return refs.List(), nil
}

// References collects references to objects of the core group in one namespace.
type References struct {
	// Namespace of all objects referred to.
	Namespace string

	refs []reference
}

type reference struct {
	kind Kind
	name string
}

// Kind is a kind that pods refer to.
type Kind int

// The kinds, in the order in which they are listed.
const (
	ConfigMap Kind = iota
	Secret
	ServiceAccount
	PersistentVolumeClaim
	Service
)

var kindNames = [...]string{"ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "Service"}

// Add adds an object; the empty name is no reference.
func (r *References) Add(kind Kind, name string) {
	if name == "" {
		return
	}
	ref := reference{kind, name}
	if !slices.Contains(r.refs, ref) {
		r.refs = append(r.refs, ref)
	}
}

// Remove forgets an object.
func (r *References) Remove(kind Kind, name string) {
	r.refs = slices.DeleteFunc(r.refs, func(ref reference) bool { return ref == reference{kind, name} })
}

// AddField adds the object named by a string field, if the field is set.
func (r *References) AddField(kind Kind, obj map[string]any, path ...string) error {
	name, _, err := fields.String(obj, path...)
	if err != nil {
		return err
	}
	r.Add(kind, name)
	return nil
}

// List returns the references sorted by kind and name, without duplicates.
func (r *References) List() []configv1alpha1.DependentObjectReference {
	if len(r.refs) == 0 {
		return nil
	}
	slices.SortFunc(r.refs, func(a, b reference) int {
		if a.kind != b.kind {
			return int(a.kind - b.kind)
		}
		return strings.Compare(a.name, b.name)
	})
	list := make([]configv1alpha1.DependentObjectReference, len(r.refs))
	for i, ref := range r.refs {
		list[i] = configv1alpha1.DependentObjectReference{
			APIVersion: "v1", Kind: kindNames[ref.kind], Namespace: r.Namespace, Name: ref.name,
		}
	}
	return list
}

// AddPod adds what a pod spec refers to. The default ServiceAccount exists everywhere and is left out.
func (r *References) AddPod(spec map[string]any) error {
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		if err := r.each(spec, list, r.container); err != nil {
			return err
		}
	}
	if err := r.each(spec, "volumes", r.volume); err != nil {
		return err
	}
	if err := r.each(spec, "imagePullSecrets", func(ref map[string]any) error { return r.AddField(Secret, ref, "name") }); err != nil {
		return err
	}
	account, _, err := fields.String(spec, "serviceAccountName")
	if err != nil {
		return err
	}
	if account == "" {
		if account, _, err = fields.String(spec, "serviceAccount"); err != nil {
			return err
		}
	}
	if account != "default" {
		r.Add(ServiceAccount, account)
	}
	return nil
}

func (r *References) each(obj map[string]any, field string, add func(map[string]any) error) error {
	list, err := fields.Objects(obj, field)
	if err != nil {
		return err
	}
	for i, item := range list {
		if err := add(item); err != nil {
			return fields.Under(field+fields.Index(i), err)
		}
	}
	return nil
}

func (r *References) container(container map[string]any) error {
	err := r.each(container, "envFrom", func(source map[string]any) error {
		if err := r.AddField(ConfigMap, source, "configMapRef", "name"); err != nil {
			return err
		}
		return r.AddField(Secret, source, "secretRef", "name")
	})
	if err != nil {
		return err
	}
	return r.each(container, "env", func(env map[string]any) error {
		if err := r.AddField(ConfigMap, env, "valueFrom", "configMapKeyRef", "name"); err != nil {
			return err
		}
		return r.AddField(Secret, env, "valueFrom", "secretKeyRef", "name")
	})
}

// volumeSources are the places in a volume that name an object.
var volumeSources = []struct {
	kind Kind
	path []string
}{
	{ConfigMap, []string{"configMap", "name"}},
	{Secret, []string{"secret", "secretName"}},
	{Secret, []string{"azureFile", "secretName"}},
	{Secret, []string{"cephfs", "secretRef", "name"}},
	{Secret, []string{"cinder", "secretRef", "name"}},
	{Secret, []string{"csi", "nodePublishSecretRef", "name"}},
	{Secret, []string{"flexVolume", "secretRef", "name"}},
	{Secret, []string{"iscsi", "secretRef", "name"}},
	{Secret, []string{"rbd", "secretRef", "name"}},
	{Secret, []string{"scaleIO", "secretRef", "name"}},
	{Secret, []string{"storageos", "secretRef", "name"}},
	{PersistentVolumeClaim, []string{"persistentVolumeClaim", "claimName"}},
}

func (r *References) volume(volume map[string]any) error {
	for _, source := range volumeSources {
		if volume[source.path[0]] == nil {
			continue
		}
		if err := r.AddField(source.kind, volume, source.path...); err != nil {
			return err
		}
	}
	projected, found, err := fields.Map(volume, "projected")
	if err != nil || !found {
		return err
	}
	err = r.each(projected, "sources", func(source map[string]any) error {
		if err := r.AddField(ConfigMap, source, "configMap", "name"); err != nil {
			return err
		}
		return r.AddField(Secret, source, "secret", "name")
	})
	return fields.Under("projected", err)
}
