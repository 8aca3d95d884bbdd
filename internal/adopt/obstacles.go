package adopt

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/entry"
)

// fixedFields are fields that cannot be changed once an object exists. If they differ, no template fits all clusters.
var fixedFields = map[schema.GroupKind][]string{
	{Group: "apps", Kind: "Deployment"}:                       {"spec.selector"},
	{Group: "apps", Kind: "ReplicaSet"}:                       {"spec.selector"},
	{Group: "apps", Kind: "DaemonSet"}:                        {"spec.selector"},
	{Group: "apps", Kind: "StatefulSet"}:                      {"spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"},
	{Group: "batch", Kind: "Job"}:                             {"spec.selector", "spec.completionMode"},
	{Kind: "Service"}:                                         {"spec.clusterIP"},
	{Kind: "PersistentVolumeClaim"}:                           {"spec.accessModes", "spec.storageClassName", "spec.volumeMode", "spec.selector"},
	{Kind: "Secret"}:                                          {"type"},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: {"roleRef"},
}

func fixed(key Key, field string) bool {
	return slices.ContainsFunc(fixedFields[key.GroupKind()], func(path string) bool { return within(field, path) })
}

// examine looks for what stands in the way of adopting the objects as they are.
func (p *Planner) examine(item *Item, group Group) error {
	var managed []string
	for _, object := range group.Objects {
		obj := object.Object
		if p.byName[object.Cluster] == nil {
			return fmt.Errorf("cluster %s is not part of the federation", object.Cluster)
		}
		if owner := metav1.GetControllerOf(obj); owner != nil {
			item.refuse("%s %s controls it in cluster %s; adopt that instead", owner.Kind, owner.Name, object.Cluster)
		}
		if obj.GetDeletionTimestamp() != nil {
			item.refuse("it is being deleted in cluster %s", object.Cluster)
		}
		if _, open := entry.Of(obj.GetAnnotations()); open && !IsCopy(obj, group.Template) {
			item.refuse("it is out of the federation's hands in cluster %s, by the annotation %s; remove that first", object.Cluster, names.EntryAnnotation)
		}
		switch {
		case IsCopy(obj, group.Template):
			managed = append(managed, object.Cluster)
		case marked(obj):
			item.refuse("another federation manages it in cluster %s, according to its labels; release it there first", object.Cluster)
		}
	}
	item.Managed = len(managed) == len(group.Objects)
	if len(managed) > 0 && !item.Managed {
		item.refuse("the federation manages it in %s already, but not in every cluster; change its policy instead", strings.Join(managed, ", "))
	}
	return nil
}

// IsCopy reports whether an object of a member is the copy of a template, which may be nil.
func IsCopy(obj, template *unstructured.Unstructured) bool {
	return template != nil && marked(obj) && obj.GetAnnotations()[names.TemplateUIDAnnotation] == string(template.GetUID())
}

// marked reports whether a federation manages an object.
func marked(obj *unstructured.Unstructured) bool {
	labels := obj.GetLabels()
	for _, label := range []string{names.CellLabel, names.WorkPermanentIDLabel, names.ResourceBindingPermanentIDLabel, names.ClusterResourceBindingPermanentIDLabel} {
		if labels[label] != "" {
			return true
		}
	}
	return labels[names.ManagedLabel] == names.ManagedValue
}
