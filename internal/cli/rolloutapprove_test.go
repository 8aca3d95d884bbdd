package cli

import (
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/rollout/stages"
)

func TestApprovable(t *testing.T) {
	for name, test := range map[string]struct {
		record         stages.Record
		stage          string
		despiteFailure bool
		want, refuse   string
	}{
		"the stage that waits":        {record: stages.Record{Waiting: "production"}, want: "production"},
		"another one, in advance":     {record: stages.Record{Waiting: "north"}, stage: "production", want: "production"},
		"nothing waits":               {refuse: "no stage waits for approval"},
		"a failed update":             {record: stages.Record{Waiting: "production", Failed: []string{"member1"}}, refuse: "the update has failed in member1; correct it, or let it go on with --despite-failure"},
		"a failed update, on purpose": {record: stages.Record{Failed: []string{"member1"}}, despiteFailure: true},
		"one that has not failed":     {record: stages.Record{Waiting: "production"}, despiteFailure: true, refuse: "the update has not failed"},
	} {
		got, err := approvable(&test.record, test.stage, test.despiteFailure)
		if got != test.want || (err != nil) != (test.refuse != "") || err != nil && !strings.Contains(err.Error(), test.refuse) {
			t.Errorf("%s: approves %q with the error %v", name, got, err)
		}
	}
}
