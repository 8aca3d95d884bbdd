package rollout

import (
	"reflect"
	"testing"

	"github.com/cellplane/cellplane/api/names"
)

// What a cluster has is found again in its object, also if the member has added to it.
func TestWithLiveTemplate(t *testing.T) {
	const head, added = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"n"},"spec":{"replicas":3,"template":{"spec":{`, `"restartPolicy":"Always",`
	wanted := object(t, head+`"containers":[{"name":"c","image":"app:2"}]}}}}`)
	same := object(t, head+added+`"containers":[{"name":"c","image":"app:2","imagePullPolicy":"Always"}]}}}}`)
	if got, err := WithLiveTemplate(wanted, same); err != nil || got != wanted {
		t.Errorf("a cluster that has the pod template gets another one: %v %v", got, err)
	}
	old := object(t, head+added+`"containers":[{"name":"c","image":"app:1"}]}}}}`)
	old.Object["spec"].(map[string]any)["replicas"] = int64(7)
	got, err := WithLiveTemplate(wanted, old)
	if err != nil {
		t.Fatal(err)
	}
	if RevisionOf(got) != RevisionOf(old) || RevisionOf(wanted) == RevisionOf(old) {
		t.Errorf("got another pod template than the cluster has: %v", got)
	}
	if CopyOf(got).Command.Replicas != 3 {
		t.Errorf("got more than the pod template: %v", got)
	}
}

// A manifest that was made from an object is known by the name that its pod template had.
func TestToldByName(t *testing.T) {
	manifest := object(t, web)
	for seq := range int64(3) {
		entry := Entry{Seq: seq + 1, Command: Command{Replicas: 2, Surge: 1, Revision: "former"}}
		if got := Told(entry.Apply(manifest)); got.Seq != entry.Seq || got.Command != entry.Command {
			t.Errorf("got %+v, want %+v", got, entry)
		}
	}
	first := (&Entry{Seq: 1, Command: Command{Replicas: 2, Surge: 1, Revision: RevisionOf(manifest)}}).Apply(manifest)
	if mark, has := first.GetAnnotations()[names.RolloutCommandAnnotation]; has {
		t.Errorf("the first command has a number: %s", mark)
	}
}

func TestRestored(t *testing.T) {
	command := func(replicas int, revision string) Command {
		return Command{Replicas: replicas, Surge: 1, Revision: revision}
	}
	ledger := Entry{Seq: 4, Command: command(3, "a"), Revisions: []string{"a"}, Loosened: Envelope{3, 3, 3}, Seen: 9}
	begun := Entry{Seq: 4, Command: command(3, "b"), Revisions: []string{"a", "b"}}
	for name, test := range map[string]struct {
		ledger Entry
		live   Copy
		want   Entry
	}{
		"without a ledger":                        {Entry{}, Copy{Command: command(3, "")}, Entry{Seq: 1, Command: command(3, "live")}},
		"without a ledger, but with a number":     {Entry{}, Copy{Seq: 2, Command: command(3, "a")}, Entry{Seq: 2, Command: command(3, "a")}},
		"with the newest command":                 {ledger, Copy{Seq: 4, Command: command(3, "a")}, ledger},
		"before a command that has not arrived":   {ledger, Copy{Seq: 3, Command: command(5, "a")}, ledger},
		"with the first command, never updated":   {ledger, Copy{Command: command(5, "")}, ledger},
		"before an update that has not arrived":   {begun, Copy{Seq: 3, Command: command(3, "a")}, Entry{Seq: 3, Command: command(3, "a")}},
		"the same, with the first command":        {begun, Copy{Command: command(3, "")}, Entry{Seq: 1, Command: command(3, "live")}},
		"with a command that the backup lacks":    {ledger, Copy{Seq: 5, Command: command(2, "a")}, Entry{Seq: 5, Command: command(2, "a")}},
		"with an update that the backup lacks":    {ledger, Copy{Seq: 5, Command: command(3, "b")}, Entry{Seq: 5, Command: command(3, "b")}},
		"with another update that has its number": {ledger, Copy{Seq: 4, Command: command(3, "b")}, Entry{Seq: 4, Command: command(3, "b")}},
	} {
		if got := test.ledger.Restored(&test.live, "live"); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
