package install

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/federate"
)

// TestRenderCell compares a cell that is rendered alone with what a release has more when its values list it.
func TestRenderCell(t *testing.T) {
	for name, text := range map[string]string{
		"defaults":     ``,
		"cert-manager": `certificates: {issuer: cert-manager}`,
		"monitored":    monitored,
	} {
		t.Run(name, func(t *testing.T) {
			release := Release{Name: "cp", Namespace: "fed", Values: values(t, text)}
			entry := map[string]any{"name": "cell-x", "apiServer": map[string]any{"replicas": float64(4)}, "etcd": map[string]any{"replicas": float64(5)}}
			listed := func(cells ...any) map[string]*unstructured.Unstructured {
				with := release
				with.Values = maps.Clone(release.Values)
				with.Values["cells"] = cells
				found := map[string]*unstructured.Unstructured{}
				all, err := render(with, providerService)
				if err != nil {
					t.Fatal(err)
				}
				for _, object := range all.Objects {
					found[object.GetKind()+" "+object.GetName()] = object
				}
				return found
			}
			without := listed(map[string]any{"name": "cell-a"})
			want := listed(map[string]any{"name": "cell-a"}, entry)
			config := federation(t, want["ConfigMap cp-federation"])
			maps.DeleteFunc(want, func(key string, object *unstructured.Unstructured) bool {
				return without[key] != nil || object.GetKind() == "Job"
			})

			cell, err := RenderCell(release, entry, map[string]string{"example.com/more": "yes"})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]*unstructured.Unstructured{}
			for _, object := range cell.Objects {
				labels := object.GetLabels()
				if labels["example.com/more"] != "yes" || labels[managedByLabel] != providerService {
					t.Errorf("%s %s has the labels %v", object.GetKind(), object.GetName(), labels)
				}
				delete(labels, "example.com/more")
				object.SetLabels(labels)
				got[object.GetKind()+" "+object.GetName()] = object
				if !slices.ContainsFunc(cellKinds, func(kind schema.GroupVersionKind) bool { return kind == object.GroupVersionKind() }) {
					t.Errorf("objects of kind %s are not deleted with the cell", object.GetKind())
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the cell differs from one that is listed (-listed +alone):\n%s", diff)
			}
			checkConfig(t, cell, config)
		})
	}
}

// checkConfig compares what makes a cell one of the federation with the configuration of a release that lists it, and its Secrets with those that are mounted.
func checkConfig(t *testing.T, cell *Cell, listed *federate.Config) {
	t.Helper()
	if diff := cmp.Diff(listed.Cells[1:], cell.Config.Cells); diff != "" {
		t.Errorf("the cell is registered otherwise:\n%s", diff)
	}
	certificates := slices.DeleteFunc(listed.Certificates, func(c federate.Certificate) bool { return !strings.HasPrefix(c.Secret, "cp-cell-x-") })
	if diff := cmp.Diff(certificates, cell.Config.Certificates); diff != "" {
		t.Errorf("its certificates differ:\n%s", diff)
	}
	var authorities []string
	if len(listed.Authorities) > 0 {
		authorities = []string{"cp-hub-ca", "cp-cell-x-ca", "cp-cell-x-etcd-ca", "cp-cell-x-front-proxy-ca", "cp-cell-x-service-accounts"}
	}
	if diff := cmp.Diff(authorities, cell.Config.Authorities); diff != "" && len(authorities)+len(cell.Config.Authorities) > 0 {
		t.Errorf("its authorities differ:\n%s", diff)
	}
	for _, object := range cell.Objects {
		template := podOf(t, object)
		if template == nil {
			continue
		}
		for _, source := range template.Spec.Volumes[0].Projected.Sources {
			if source.Secret != nil && !slices.Contains(cell.Secrets, source.Secret.Name) && source.Secret.Name != "cp-metrics" {
				t.Errorf("%s mounts the Secret %s, which is not one of the cell", object.GetName(), source.Secret.Name)
			}
		}
	}
	for purpose, name := range cell.Authorities {
		if !slices.Contains(cell.Secrets, name) {
			t.Errorf("the authority for %s, %s, is not issued", purpose, name)
		}
	}
}

// TestFullname compares the prefix of names with that of the chart.
func TestFullname(t *testing.T) {
	for _, release := range []Release{
		{Name: "cp", Namespace: "fed"},
		{Name: "a-very-long-name-of-a-release-with-a-cut-and-more", Namespace: "fed"},
		{Name: "cp", Namespace: "fed", Values: map[string]any{"fullnameOverride": "other"}},
	} {
		for _, object := range rendered(t, release) {
			if object.GetKind() == "ConfigMap" && strings.HasSuffix(object.GetName(), "-federation") && object.GetName() != release.Fullname()+"-federation" {
				t.Errorf("the names begin with %s, and the chart has %s", release.Fullname(), object.GetName())
			}
		}
	}
}
