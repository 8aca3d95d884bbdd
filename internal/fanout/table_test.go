package fanout

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func columns(names ...string) (all []metav1.TableColumnDefinition) {
	for _, name := range names {
		all = append(all, metav1.TableColumnDefinition{Name: name})
	}
	return all
}

// Clusters of other versions have other columns: cells stay below their own names.
func TestRows(t *testing.T) {
	shown := header(columns("Name", "Ready", "Age"))
	managed := runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"karmada.io/managed":"true"}}}`)}
	for _, test := range []struct {
		target  Target
		columns []metav1.TableColumnDefinition
		row     metav1.TableRow
		want    []any
	}{
		{Target{Name: "same", Member: true}, columns("Name", "Ready", "Age"), metav1.TableRow{Cells: []any{"web", "1/1", "5m"}, Object: managed}, []any{"web", "same", "1/1", "5m", "Y"}},
		{Target{Name: "new", Member: true}, columns("Name", "Zone", "Age", "Ready"), metav1.TableRow{Cells: []any{"web", "z", "5m", "1/1"}}, []any{"web", "new", "1/1", "5m", "N"}},
		{Target{Name: "old", Member: true}, columns("Name", "Age"), metav1.TableRow{Cells: []any{"web", "5m"}}, []any{"web", "old", nil, "5m", "N"}},
		{Target{Name: "Karmada"}, columns("Name", "Ready", "Age"), metav1.TableRow{Cells: []any{"web", "1/1", "5m"}, Object: managed}, []any{"web", "Karmada", "1/1", "5m", "-"}},
	} {
		if got := shown.rows(test.target, test.columns, []metav1.TableRow{test.row})[0].Cells; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", test.target.Name, got, test.want)
		}
	}
	var names []string
	for _, column := range shown.complete("deployments") {
		names = append(names, column.Name)
	}
	if want := []string{"Name", "Cluster", "Ready", "Age", "Adoption"}; !reflect.DeepEqual(names, want) {
		t.Errorf("the columns are %v, want %v", names, want)
	}
}

// Only the first event of a watch has columns.
func TestConvert(t *testing.T) {
	c := converter{target: Target{Name: "left", Member: true}, header: columns("Name", "Age")}
	for event, want := range []string{
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":[{"name":"Age"},{"name":"Name"}],"rows":[{"cells":["5m","web"],"object":null}]}`,
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"cells":["5m","web"],"object":null}]}`,
	} {
		got, err := c.convert([]byte(want))
		if expected := `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":null,"rows":[{"cells":["web","left","5m","N"],"object":null}]}`; err != nil || string(got) != expected {
			t.Errorf("event %d: %s, %v", event, got, err)
		}
	}
}
