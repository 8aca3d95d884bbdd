package cells

import (
	"testing"

	"github.com/cellplane/cellplane/internal/testtable"
)

func TestTable(t *testing.T) {
	if rows := testtable.Check(t, "README.md", "..", "../../test"); len(rows) == 0 {
		t.Error("the table is empty")
	}
}
