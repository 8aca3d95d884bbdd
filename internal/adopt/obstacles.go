package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
)

// fixedFields are fields that cannot be changed once an object exists. If they differ, no template fits all clusters.
var fixedFields = map[string][]string{
	"Deployment":            {"spec.selector"},
	"ReplicaSet":            {"spec.selector"},
	"DaemonSet":             {"spec.selector"},
	"StatefulSet":           {"spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"},
	"Job":                   {"spec.selector", "spec.completionMode"},
	"Service":               {"spec.clusterIP"},
	"PersistentVolumeClaim": {"spec.accessModes", "spec.storageClassName", "spec.volumeMode", "spec.selector"},
	"Secret":                {"type"},
	"RoleBinding":           {"roleRef"},
}

func fixed(key Key, field string) bool {
	return slices.ContainsFunc(fixedFields[key.Kind], func(path string) bool {
		rest, within := strings.CutPrefix(field, path)
		return within && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// examine looks for what stands in the way of adopting the objects as they are.
func (p *Planner) examine(ctx context.Context, item *Item, group Group) error {
	id, marked := "", false
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
		foreign := federationOf(obj.GetLabels())
		if foreign == "" {
			continue
		}
		if !marked && p.BindingID != nil {
			var err error
			if id, err = p.BindingID(ctx, item.Key); err != nil {
				return err
			}
			marked = true
		}
		if id != "" && foreign == id {
			managed = append(managed, object.Cluster)
			continue
		}
		item.refuse("another federation manages it in cluster %s, according to its labels; release it there first", object.Cluster)
	}
	item.Managed = len(managed) == len(group.Objects)
	if len(managed) > 0 && !item.Managed {
		item.refuse("the federation manages it in %s already, but not in every cluster; change its policy instead", strings.Join(managed, ", "))
	}
	return nil
}

// federationOf returns the mark of the federation that manages an object, or nothing.
func federationOf(labels map[string]string) string {
	for _, label := range []string{names.ResourceBindingPermanentIDLabel, names.ClusterResourceBindingPermanentIDLabel, names.WorkPermanentIDLabel} {
		if id := labels[label]; id != "" {
			return id
		}
	}
	if labels[names.ManagedLabel] == names.ManagedValue || labels[names.CellLabel] != "" {
		return "unknown"
	}
	return ""
}
