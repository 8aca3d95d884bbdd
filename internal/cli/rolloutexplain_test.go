package cli

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/rollout/stages"
)

func TestRolloutExplain(t *testing.T) {
	template, binding := rolling(t)
	record := stages.Record{Update: rollout.RevisionOf(template), Waiting: "production", Failed: []string{"b"}}
	text, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	binding.Annotations[names.RolloutStagesAnnotation] = text
	for name, test := range map[string]struct {
		ledger rollout.Ledger
		want   string
	}{
		"in the middle": {
			ledger: rollout.Ledger{
				"a": {Seq: 3, Command: rollout.Command{Replicas: 3, Revision: "b"}, Revisions: []string{"b"}, Loosened: rollout.Envelope{Pods: 3, Available: 3}},
				"b": {Seq: 2, Command: rollout.Command{Replicas: 3, Surge: 1, Revision: "b"}, Revisions: []string{"a", "b"}, Loosened: rollout.Envelope{Pods: 4, Available: 3}},
			},
			want: `Deployment shop/web: 4 of 9 updated, 9 available  [########............]
The template allows up to 12 pods, and as few as 7 available.
By what clusters were told there may be up to 7 pods, and as few as 6 available.
The update has failed in b. Correct it, or let it go on: cellplane rollout approve deployment/web -n shop --despite-failure
Stage production waits for approval: cellplane rollout approve deployment/web -n shop

a: done
  told to have 3 replicas by command 3
  may have up to 3 pods, and as few as 3 available

b: updates
  told to have 3 replicas with maxSurge 1 and maxUnavailable 0 by command 2
  may have up to 4 pods, and as few as 3 available

c: waits for other clusters: maxSurge and maxUnavailable are used up
`,
		},
		"at once": {
			want: `Deployment shop/web: 4 of 9 updated, 9 available  [########............]
No bounds are divided among clusters: the workload is not being changed, its replicas are not divided, or its kind is updated in all clusters at once.
The update has failed in b. Correct it, or let it go on: cellplane rollout approve deployment/web -n shop --despite-failure
Stage production waits for approval: cellplane rollout approve deployment/web -n shop

a: done

b: updates

c: waits for other clusters: maxSurge and maxUnavailable are used up
`,
		},
	} {
		delete(binding.Annotations, names.RolloutAnnotation)
		if test.ledger != nil {
			if binding.Annotations[names.RolloutAnnotation], err = test.ledger.Encode(); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		if err := explainRollout(&out, template, binding); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
