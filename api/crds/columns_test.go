package crds_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/api/names"
)

// TestColumnOfEntries checks that `kubectl get -o wide` tells open entries, and that the columns without it are those of Karmada.
func TestColumnOfEntries(t *testing.T) {
	bindings := "Name Scheduled FullyApplied Age"
	columns := map[string]string{"ResourceBinding": bindings, "ClusterResourceBinding": bindings, "Work": "Name Workload-Kind Workload-Name Applied Age"}
	for _, definition := range crds.All() {
		kind := definition.Spec.Names.Kind
		want, tells := columns[kind]
		if !tells {
			continue
		}
		delete(columns, kind)
		for _, version := range definition.Spec.Versions {
			if !version.Storage {
				continue
			}
			convertor, err := tableconvertor.New(version.AdditionalPrinterColumns)
			if err != nil {
				t.Fatal(err)
			}
			for _, reason := range []string{names.ReasonEntryOpen, names.ReasonEntryOverdue, ""} {
				obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}}}
				if reason != "" {
					obj.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": names.EntryOpen, "status": "True", "reason": reason}}}
				}
				table, err := convertor.ConvertToTable(t.Context(), obj, nil)
				if err != nil {
					t.Fatal(err)
				}
				var narrow []string
				told := "no such column"
				for i, column := range table.ColumnDefinitions {
					if column.Priority == 0 {
						narrow = append(narrow, column.Name)
					}
					if cell := table.Rows[0].Cells[i]; column.Name == "Entry" && cell != nil {
						told = fmt.Sprint(cell)
					} else if column.Name == "Entry" {
						told = ""
					}
				}
				if got := strings.Join(narrow, " "); got != want {
					t.Errorf("%s has the columns %s, want %s", kind, got, want)
				}
				if told != reason {
					t.Errorf("%s tells %q of an entry whose condition has the reason %q", kind, told, reason)
				}
			}
		}
	}
	if len(columns) > 0 {
		t.Errorf("there are no definitions of %v", columns)
	}
}
