package install

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	charts "github.com/cellplane/cellplane/deploy/charts"
	"github.com/cellplane/cellplane/internal/kubebin"
)

// Release is an installation.
type Release struct {
	Name, Namespace string
	// Values are the values that differ from those of the chart.
	Values map[string]any
	// KubeVersion is the version of the cluster, like v1.36.3; the default is the pinned one.
	KubeVersion string
}

// service is what the label app.kubernetes.io/managed-by says of objects that this package applies.
const service = "cellplane"

// Manifests are the objects of a release.
type Manifests struct {
	Objects []*unstructured.Unstructured
	// Notes are for people.
	Notes string
}

// hookAnnotation marks objects that only Helm runs, such as tests.
const hookAnnotation = "helm.sh/hook"

// Render returns the objects of a release, in the order in which they are applied.
func Render(release Release) (*Manifests, error) {
	all, err := render(release, service)
	if err != nil {
		return nil, err
	}
	all.Objects = slices.DeleteFunc(all.Objects, func(object *unstructured.Unstructured) bool {
		_, hook := object.GetAnnotations()[hookAnnotation]
		return hook
	})
	return all, nil
}

func render(release Release, service string) (*Manifests, error) {
	loaded, err := load(charts.Cellplane())
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	version, err := chartutil.ParseKubeVersion(cmp.Or(release.KubeVersion, kubebin.Version()))
	if err != nil {
		return nil, fmt.Errorf("the version of the cluster: %w", err)
	}
	capabilities.KubeVersion = *version
	if wanted := loaded.Metadata.KubeVersion; !chartutil.IsCompatibleRange(wanted, capabilities.KubeVersion.String()) {
		return nil, fmt.Errorf("the cluster has Kubernetes %s; %s is needed", capabilities.KubeVersion.String(), strings.TrimSuffix(wanted, "-0"))
	}
	options := chartutil.ReleaseOptions{Name: release.Name, Namespace: release.Namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(loaded, release.Values, options, capabilities)
	if err != nil {
		return nil, fmt.Errorf("the values do not fit the chart: %s", oneLine(err))
	}
	values["Release"].(map[string]any)["Service"] = service //nolint:forcetypeassert // ToRenderValues sets it
	files, err := engine.Engine{}.Render(loaded, values)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart: %w", err)
	}
	return parse(files)
}

// oneLine joins the lines of an error. The first line of Helm's only repeats the name of the chart.
func oneLine(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "-")); line != "" && line != "cellplane:" && !strings.HasPrefix(line, "values don't meet") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

func load(files fs.FS) (*chart.Chart, error) {
	var buffered []*loader.BufferedFile
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		buffered = append(buffered, &loader.BufferedFile{Name: name, Data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(buffered)
}

// parse reads the objects of rendered files.
func parse(files map[string]string) (*Manifests, error) {
	all := &Manifests{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Base(name) == "NOTES.txt" {
			all.Notes = strings.TrimSpace(files[name])
			continue
		}
		for _, document := range strings.Split("\n"+files[name], "\n---") {
			object := map[string]any{}
			data, err := yaml.YAMLToJSONStrict([]byte(document))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if err := json.Unmarshal(data, &object); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(object) == 0 {
				continue
			}
			rendered := &unstructured.Unstructured{Object: object}
			if rendered.GetKind() == "" || rendered.GetName() == "" {
				return nil, fmt.Errorf("%s has an object without kind or name", name)
			}
			all.Objects = append(all.Objects, rendered)
		}
	}
	if len(all.Objects) == 0 {
		return nil, errors.New("the chart has no objects")
	}
	slices.SortStableFunc(all.Objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return all, nil
}

// order are the kinds that others need, in the order in which they are applied.
var order = []string{"CustomResourceDefinition", "PriorityClass", "ServiceAccount", "ClusterRole", "Role", "RoleBinding", "NetworkPolicy", "ConfigMap", "Issuer", "Certificate", "Service", "PodDisruptionBudget"}

func rank(object *unstructured.Unstructured) int {
	if i := slices.Index(order, object.GetKind()); i >= 0 {
		return i
	}
	return len(order)
}

// Fullname returns the prefix of the names of all objects.
func (r Release) Fullname() string {
	name, _ := r.Values["fullnameOverride"].(string)
	name = cmp.Or(name, r.Name)
	return strings.TrimSuffix(name[:min(len(name), fullnameLength)], "-")
}

// fullnameLength is the length of that prefix at most, as in the chart.
const fullnameLength = 40
