package scenario

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDecisions compares the decisions with those of Kubernetes' own controller, which test/autoscaler recorded. How the
// pods are divided among clusters makes no difference.
func TestDecisions(t *testing.T) {
	file, err := os.Open("testdata/replicas.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	number, changes := uint64(0), 0
	for lines := bufio.NewScanner(file); lines.Scan(); number++ {
		got, err := New(number).Run(int(1 + number%5))
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Trim(fmt.Sprint(got), "[]"); text != lines.Text() {
			t.Errorf("scenario %d: got %s, the controller decides %s", number, text, lines.Text())
		}
		changes += len(slices.Compact(got)) - 1
	}
	if number < 1000 || changes < 2000 {
		t.Errorf("only %d scenarios with %d changes were compared", number, changes)
	}
}
