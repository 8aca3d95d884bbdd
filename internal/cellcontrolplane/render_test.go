package cellcontrolplane

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
)

// TestValuesOf expects the names of fields that the values of the chart have.
func TestValuesOf(t *testing.T) {
	spec := &v1alpha1.CellControlPlaneSpec{Replicas: ptr.To[int32](3), CellSettings: v1alpha1.CellSettings{
		Etcd:   v1alpha1.EtcdSettings{Replicas: ptr.To[int32](5), Storage: ptr.To(resource.MustParse("10Gi")), StorageClassName: "fast"},
		Engine: v1alpha1.EngineSettings{Replicas: ptr.To[int32](2), ProgramSettings: v1alpha1.ProgramSettings{Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}},
	}}
	got, err := valuesOf("cell-x", spec)
	want := map[string]any{
		"name":      "cell-x",
		"apiServer": map[string]any{"replicas": float64(3)},
		"etcd":      map[string]any{"replicas": float64(5), "storage": "10Gi", "storageClassName": "fast"},
		"engine":    map[string]any{"replicas": float64(2), "resources": map[string]any{"requests": map[string]any{"cpu": "2"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("the values differ (%v):\n%s", err, diff)
	}
}

// TestWithVersion replaces the image of API servers, and no other. A digest is that of one version.
func TestWithVersion(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	values := map[string]any{"images": map[string]any{
		"prefix":        "registry.example.com",
		"kubeApiserver": map[string]any{"tag": "v1.36.3", "digest": digest},
	}}
	for version, want := range map[string]map[string]any{
		"v1.36.3":       {"tag": "v1.36.3", "digest": digest},
		"1.36.3":        {"tag": "v1.36.3", "digest": digest},
		"v1.36.4":       {"tag": "v1.36.4", "digest": ""},
		"v1.36.4+fixed": {"tag": "v1.36.4_fixed", "digest": ""},
	} {
		images, _ := withVersion(values, version)["images"].(map[string]any)
		if diff := cmp.Diff(any(want), images["kubeApiserver"]); diff != "" || images["prefix"] != "registry.example.com" {
			t.Errorf("the images of %s are %v:\n%s", version, images, diff)
		}
	}
}

// TestLowest follows the version of API servers through rollouts.
func TestLowest(t *testing.T) {
	for _, test := range []struct {
		name, before, wanted string
		complete             bool
		want                 string
	}{
		{"before the first is ready", "", "v1.36.3", false, ""},
		{"all are ready", "", "v1.36.3", true, "v1.36.3"},
		{"a newer one is rolled out", "v1.36.3", "v1.37.0", false, "v1.36.3"},
		{"it is rolled out", "v1.36.3", "v1.37.0", true, "v1.37.0"},
		{"an older one is rolled out", "v1.37.0", "v1.36.3", false, "v1.36.3"},
	} {
		if got := lowest(test.before, test.wanted, test.complete); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
