package gateway_test

import (
	"testing"

	"github.com/cellplane/cellplane/internal/testtable"
)

func TestTable(t *testing.T) {
	if rows := testtable.Check(t, "EXPECTATIONS.md", "../../internal", "../../test"); len(rows) == 0 {
		t.Error("there are no rows")
	}
}
