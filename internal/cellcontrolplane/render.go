package cellcontrolplane

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/install"
)

// render renders what the chart has for the cell.
func (r *run) render() (*install.Cell, error) {
	values, err := valuesOf(r.cell, &r.plane.Spec)
	if err != nil {
		return nil, err
	}
	release := r.Release
	release.Values = withVersion(release.Values, r.plane.Spec.Version)
	cell, err := install.RenderCell(release, values, map[string]string{clusterNameLabel: r.cell})
	if err != nil {
		return nil, err
	}
	cell.Config.Wrap = r.Wrap
	return cell, nil
}

// valuesOf returns a cell as an entry of the values of the chart, whose fields have the same names.
func valuesOf(name string, spec *v1alpha1.CellControlPlaneSpec) (map[string]any, error) {
	values := map[string]any{"name": name}
	for field, settings := range map[string]any{"etcd": spec.Etcd, "apiServer": spec.APIServer, "engine": spec.Engine} {
		data, err := json.Marshal(settings)
		if err != nil {
			return nil, fmt.Errorf("the settings of %s: %w", field, err)
		}
		fields := map[string]any{}
		if err := json.Unmarshal(data, &fields); err != nil {
			return nil, fmt.Errorf("the settings of %s: %w", field, err)
		}
		values[field] = fields
	}
	if spec.Replicas != nil {
		values["apiServer"].(map[string]any)["replicas"] = float64(ptr.Deref(spec.Replicas, 0)) //nolint:forcetypeassert // set above
	}
	return values, nil
}

// withVersion returns values with another version of Kubernetes for API servers. A digest is that of the version of the installation.
func withVersion(values map[string]any, version string) map[string]any {
	tag := strings.ReplaceAll(normal(version), "+", "_")
	changed := maps.Clone(values)
	images := map[string]any{}
	if present, ok := values["images"].(map[string]any); ok {
		images = maps.Clone(present)
	}
	if image, ok := images["kubeApiserver"].(map[string]any); ok && image["tag"] == tag {
		return values
	}
	images["kubeApiserver"] = map[string]any{"tag": tag, "digest": ""}
	changed["images"] = images
	return changed
}

// normal returns a version with the prefix v.
func normal(version string) string { return "v" + strings.TrimPrefix(version, "v") }
