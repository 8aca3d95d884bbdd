package fanout

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
)

// header is the columns of a merged Table, without those that are added: the columns of the first target. Other targets may
// have other versions, and other columns.
type header []metav1.TableColumnDefinition

// mergeTables puts the rows of all targets below each other.
func (t *Transport) mergeTables(answers []answer, path string, info *request.RequestInfo) answer {
	merged := metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "Table"}}
	at := versions{}
	var columns header
	for _, a := range answers {
		var table metav1.Table
		if err := json.Unmarshal(a.body, &table); err != nil {
			t.fail(unreadable(a.target, err))
			continue
		}
		if table.Kind != "Table" {
			t.fail(unreadable(a.target, errFormat))
			continue
		}
		if columns == nil {
			columns = table.ColumnDefinitions
		}
		at[a.target.Name] = table.ResourceVersion
		merged.Rows = append(merged.Rows, columns.rows(a.target, table.ColumnDefinitions, table.Rows)...)
	}
	t.mu.Lock()
	if t.headers == nil {
		t.headers = map[string]header{}
	}
	t.headers[path] = columns
	t.mu.Unlock()
	merged.ColumnDefinitions = columns.complete(info.Resource)
	merged.ResourceVersion = at.String()
	return encoded(merged)
}

// complete returns the columns with those that are added.
func (h header) complete(resource string) []metav1.TableColumnDefinition {
	if len(h) == 0 {
		return nil
	}
	adoption := metav1.TableColumnDefinition{Name: "Adoption", Type: "string", Description: "Y if the federation manages the object in this cluster, otherwise N"}
	if resource == "pods" { // members create them: none is managed
		adoption.Priority = 1
	}
	cluster := metav1.TableColumnDefinition{Name: "Cluster", Type: "string", Description: "Cluster of the object, or Karmada for a template"}
	complete := append([]metav1.TableColumnDefinition{h[0], cluster}, h[1:]...)
	return append(complete, adoption)
}

// rows returns the rows of a target in the columns of the header. What the target does not have stays empty.
func (h header) rows(target Target, columns []metav1.TableColumnDefinition, rows []metav1.TableRow) []metav1.TableRow {
	position := make(map[string]int, len(columns))
	for i, column := range columns {
		position[column.Name] = i
	}
	for i, row := range rows {
		cells := make([]any, 0, len(h)+2)
		for _, column := range h {
			var cell any
			if at, found := position[column.Name]; found && at < len(row.Cells) {
				cell = row.Cells[at]
			}
			cells = append(cells, cell)
			if len(cells) == 1 {
				cells = append(cells, target.Name)
			}
		}
		cells = append(cells, adoption(target, row))
		rows[i].Cells = cells
	}
	return rows
}

// adoption is what Karmada prints.
func adoption(target Target, row metav1.TableRow) string {
	if !target.Member {
		return "-"
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(row.Object.Raw, &object); err == nil && object.Labels[names.ManagedLabel] == names.ManagedValue {
		return "Y"
	}
	return "N"
}
