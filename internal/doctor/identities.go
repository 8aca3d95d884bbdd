package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/membership"
)

// checkIdentities looks for rights and credentials on the hub that belong to cells or clusters that are gone.
func (d *Doctor) checkIdentities(ctx context.Context) ([]Finding, error) {
	cells, clusters := []string{membership.HubEngine}, []string{}
	for i := range d.cells {
		cells = append(cells, d.cells[i].Name)
	}
	for i := range d.clusters {
		clusters = append(clusters, d.clusters[i].Name)
	}
	var findings []Finding
	subjects := func(object string, all []rbacv1.Subject) {
		for _, s := range all {
			if s.Kind == rbacv1.UserKind && gone(s.Name, cells, clusters) {
				findings = append(findings, find(LeftoverIdentity, Warning, object, "it gives rights to "+s.Name+", which is gone"))
			}
		}
	}
	var global rbacv1.ClusterRoleBindingList
	if err := d.hub.client.List(ctx, &global); err != nil {
		return nil, fmt.Errorf("listing ClusterRoleBindings: %w", err)
	}
	for i := range global.Items {
		subjects("ClusterRoleBinding "+global.Items[i].Name, global.Items[i].Subjects)
	}
	var bindings rbacv1.RoleBindingList
	if err := d.hub.client.List(ctx, &bindings); err != nil {
		return findings, fmt.Errorf("listing RoleBindings: %w", err)
	}
	for i := range bindings.Items {
		subjects("RoleBinding "+bindings.Items[i].Namespace+"/"+bindings.Items[i].Name, bindings.Items[i].Subjects)
	}
	var secrets corev1.SecretList
	if err := d.hub.client.List(ctx, &secrets, client.InNamespace(names.ClusterNamespace), client.HasLabels{names.ClusterLabel}); err != nil {
		return findings, fmt.Errorf("listing the credentials for clusters: %w", err)
	}
	for i := range secrets.Items {
		s := &secrets.Items[i]
		cluster := s.Labels[names.ClusterLabel]
		object := "Secret " + s.Namespace + "/" + s.Name
		_, cell, ofEngine := strings.Cut(s.Name, ".")
		switch {
		case !slices.Contains(clusters, cluster):
			findings = append(findings, find(LeftoverIdentity, Warning, object, "it has credentials for cluster "+cluster+", which is gone"))
		case ofEngine && !slices.Contains(cells, cell):
			findings = append(findings, find(LeftoverIdentity, Warning, object, "it has credentials of cell "+cell+", which is gone"))
		}
	}
	return findings, nil
}

// gone reports whether a user is the engine of a cell, or the agent of a cluster, that does not exist.
func gone(user string, cells, clusters []string) bool {
	if cell, ok := strings.CutPrefix(user, names.EngineUser("")); ok {
		return !slices.Contains(cells, cell)
	}
	cluster, ok := strings.CutPrefix(user, names.AgentPrefix)
	return ok && !slices.Contains(clusters, cluster)
}
