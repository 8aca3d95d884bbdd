package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/adopt"
)

// adoptionPrinter prints plans.
type adoptionPrinter interface {
	begin(a *adoption) error
	item(item *adopt.Item) error
	// shared prints a cluster-scoped object that planned ones refer to. It is not adopted.
	shared(item *adopt.Item) error
	end() error
}

// adoptionTable prints a line for each group.
type adoptionTable struct {
	printer
	ready, refused, managed int
}

func newAdoptionTable(out io.Writer) *adoptionTable {
	return &adoptionTable{printer: printer{out: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}}
}

func (t *adoptionTable) begin(*adoption) error {
	t.line("GROUP\tCLUSTERS\tDIFFERS\tIN THE WAY")
	return t.err
}

func (t *adoptionTable) item(item *adopt.Item) error {
	obstacles := slices.Clone(item.Obstacles)
	switch {
	case item.Managed:
		t.managed++
		obstacles = append(obstacles, "managed already")
	case len(obstacles) > 0:
		t.refused++
	default:
		t.ready++
	}
	for _, cluster := range item.LeftOut {
		obstacles = append(obstacles, "no replicas in "+cluster+": left out")
	}
	// A field that overrides cannot set is named with its obstacle.
	t.line("%s\t%s\t%s\t%s", item.Key, clustersOf(item), orNone(shorten(item.Differences)), orNone(strings.Join(obstacles, "; ")))
	return t.err
}

// shared prints a line if the clusters differ: a replica that moves would find another one.
func (t *adoptionTable) shared(item *adopt.Item) error {
	if len(item.Differences) > 0 {
		t.line("%s\t%s\t%s\t%s", item.Key, clustersOf(item), shorten(item.Differences), "not adopted, and it is not the same in all clusters")
	}
	return t.err
}

func (t *adoptionTable) end() error {
	t.table()
	t.line("%d can be adopted, %d cannot, %d are managed already", t.ready, t.refused, t.managed)
	t.table()
	return t.err
}

func clustersOf(item *adopt.Item) string {
	parts := make([]string, len(item.Targets))
	for i, target := range item.Targets {
		parts[i] = target.Cluster
		if item.Scaled {
			parts[i] = fmt.Sprintf("%s:%d", target.Cluster, target.Replicas)
		}
	}
	return strings.Join(parts, " ")
}

// shorten names at most three fields.
func shorten(fields []string) string {
	const most = 3
	if len(fields) <= most {
		return strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(fields[:most], ", "), len(fields)-most)
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// adoptionYAML prints the manifests of what can be adopted. What cannot is a comment, and a warning at the end.
type adoptionYAML struct {
	out, warnings io.Writer
	refused       int
}

func (y *adoptionYAML) begin(a *adoption) error {
	if a.namespaceExists.Load() {
		return nil
	}
	return y.document(newNamespace(a.flags.namespace))
}

// newNamespace returns a namespace for templates. It is not created in clusters that do not have it.
func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.SkipAutoPropagationLabel: "true"}},
	}
}

func (y *adoptionYAML) item(item *adopt.Item) error {
	switch {
	case item.Managed:
		return nil
	case len(item.Obstacles) > 0:
		y.refused++
		_, err := fmt.Fprintf(y.out, "# %s cannot be adopted: %s\n", item.Key, strings.ReplaceAll(strings.Join(item.Obstacles, "; "), "\n", " "))
		return err
	}
	if item.Override != nil {
		if err := y.document(item.Override); err != nil {
			return err
		}
	}
	policy, _ := item.NewPolicy()
	if err := y.document(policy); err != nil {
		return err
	}
	return y.document(item.Template.Object)
}

func (y *adoptionYAML) shared(item *adopt.Item) error {
	if len(item.Differences) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(y.out, "# %s is not adopted, and it is not the same in all clusters: %s\n", item.Key, shorten(item.Differences))
	return err
}

func (y *adoptionYAML) document(object any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(y.out, "---\n%s", text)
	return err
}

func (y *adoptionYAML) end() error {
	if y.refused == 0 {
		return nil
	}
	_, err := fmt.Fprintf(y.warnings, "Groups that cannot be adopted: %d. `cellplane adopt plan` says why.\n", y.refused)
	return err
}
