package replicate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var (
	plainRule     = &Rule{Kind: "Plain", Resource: schema.GroupVersionResource{Resource: "plains"}}
	statusRule    = &Rule{Kind: "Status", Resource: schema.GroupVersionResource{Resource: "statuses"}, Part: ContentAndStatus, Lingers: true}
	nestedRule    = &Rule{Kind: "Nested", Resource: schema.GroupVersionResource{Resource: "nesteds"}, Namespaced: true}
	inPlaceRule   = &Rule{Kind: "InPlace", Resource: schema.GroupVersionResource{Resource: "inplaces"}, InPlace: true, shared: func(name string) bool { return name == "shared" }}
	ignoringRule  = &Rule{Kind: "Ignoring", ignored: isSystemClass}
	namespaceRule = &Rule{Kind: "Namespace", Resource: namespaces, Part: MetadataOnly, InPlace: true, shared: isSystemNamespace}
)

func source(uid types.UID, content string) *Source {
	return &Source{ObjectMeta: metav1.ObjectMeta{UID: uid}, digest: digest(content), statusDigest: "ready"}
}

func leaving(s *Source) *Source { s.DeletionTimestamp = ptr.To(metav1.Now()); return s }

func copied(uid types.UID, content string) *Copy {
	c := &Copy{digest: digest(content), statusDigest: "ready"}
	if uid != "" {
		c.Annotations = map[string]string{SourceUIDAnnotation: string(uid)}
	}
	return c
}

func going(c *Copy) *Copy { c.DeletionTimestamp = ptr.To(metav1.Now()); return c }

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name  string
		state State
		want  Action
	}{
		{"nothing anywhere", State{Rule: plainRule}, Nothing},
		{"new", State{Rule: plainRule, Want: source("1", "a")}, Create},
		{"new but on its way out", State{Rule: plainRule, Want: leaving(source("1", "a"))}, Nothing},
		{"new, lingering, but on its way out", State{Rule: statusRule, Want: leaving(source("1", "a"))}, Nothing},
		{"new, without a namespace", State{Rule: nestedRule, Want: source("1", "a"), Namespace: NamespaceAbsent}, Wait},
		{"the same", State{Rule: plainRule, Want: source("1", "a"), Have: copied("1", "a")}, Nothing},
		{"changed", State{Rule: plainRule, Want: source("1", "b"), Have: copied("1", "a")}, Update},
		{"changed, in a namespace on its way out", State{Rule: nestedRule, Want: source("1", "b"), Have: copied("1", "a"), Namespace: NamespaceAbsent}, Update},
		{"as the cell insists", State{Rule: plainRule, Want: source("1", "b"), Have: copied("1", "a"), Converged: true}, Nothing},
		{"content before status", State{Rule: statusRule, Want: source("1", "b"), Have: &Copy{ObjectMeta: copied("1", "").ObjectMeta, digest: "a"}}, Update},
		{"status", State{Rule: statusRule, Want: source("1", "a"), Have: &Copy{ObjectMeta: copied("1", "").ObjectMeta, digest: "a"}}, UpdateStatus},
		{"status as the cell insists", State{Rule: statusRule, Want: source("1", "a"), Have: &Copy{ObjectMeta: copied("1", "").ObjectMeta, digest: "a"}, StatusConverged: true}, Nothing},
		{"status that is not copied", State{Rule: plainRule, Want: source("1", "a"), Have: &Copy{ObjectMeta: copied("1", "").ObjectMeta, digest: "a"}}, Nothing},
		{"gone", State{Rule: plainRule, Have: copied("1", "a")}, Delete},
		{"gone, and so is the copy soon", State{Rule: plainRule, Have: going(copied("1", "a"))}, Nothing},
		{"being deleted", State{Rule: plainRule, Want: leaving(source("1", "a")), Have: copied("1", "a")}, Delete},
		{"being deleted, and lingering", State{Rule: statusRule, Want: leaving(source("1", "b")), Have: copied("1", "a")}, Update},
		{"made again", State{Rule: plainRule, Want: source("2", "a"), Have: copied("1", "a")}, Delete},
		{"made again, the copy in use", State{Rule: inPlaceRule, Want: source("2", "b"), Have: copied("1", "a")}, Update},
		{"copy deleted by somebody", State{Rule: plainRule, Want: source("1", "a"), Have: going(copied("1", "a"))}, Wait},
		{"in the way", State{Rule: plainRule, Want: source("1", "a"), Have: copied("", "a")}, Conflict},
		{"in nobody's way", State{Rule: plainRule, Have: copied("", "a")}, Foreign},
		{"soon in nobody's way", State{Rule: plainRule, Want: leaving(source("1", "a")), Have: copied("", "a")}, Foreign},
		{"shared, to be adopted", State{Rule: inPlaceRule, Name: "shared", Want: source("1", "a"), Have: copied("", "b")}, Update},
		{"shared, gone on the hub", State{Rule: inPlaceRule, Name: "shared", Have: copied("1", "a")}, Nothing},
		{"shared, being deleted on the hub", State{Rule: inPlaceRule, Name: "shared", Want: leaving(source("1", "a")), Have: copied("1", "a")}, Nothing},
		{"an API server's own", State{Rule: ignoringRule, Name: "system-a", Want: source("1", "a"), Have: copied("", "b")}, Nothing},
		{"not an API server's own", State{Rule: ignoringRule, Name: "a", Want: source("1", "a")}, Create},

		{"new namespace", State{Rule: namespaceRule, Want: source("1", "a")}, Create},
		{"labels of a namespace", State{Rule: namespaceRule, Want: source("1", "b"), Have: copied("1", "a")}, Update},
		{"namespace made again", State{Rule: namespaceRule, Want: source("2", "b"), Have: copied("1", "a")}, Update},
		{"namespace made again, the former still terminating", State{Rule: namespaceRule, Want: source("2", "b"), Have: going(copied("1", "a"))}, Finalize},
		{"namespace being deleted", State{Rule: namespaceRule, Want: leaving(source("1", "a")), Have: copied("1", "a")}, Delete},
		{"namespace being emptied", State{Rule: namespaceRule, Want: leaving(source("1", "a")), Have: going(copied("1", "a"))}, Nothing},
		{"namespace gone", State{Rule: namespaceRule, Have: going(copied("1", "a"))}, Finalize},
		{"namespace gone while nobody watched", State{Rule: namespaceRule, Have: copied("1", "a")}, Retire},
		{"namespace of somebody else", State{Rule: namespaceRule, Have: copied("", "a")}, Foreign},
		{"namespace of an API server", State{Rule: namespaceRule, Name: "default", Want: source("1", "a"), Have: copied("", "b")}, Update},
		{"namespace of an API server, gone on the hub", State{Rule: namespaceRule, Name: "kube-node-lease", Have: copied("1", "a")}, Nothing},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// world is a model of a hub and a cell, with the API server's rules for namespaces.
type world struct {
	hub     map[string]*Source
	cell    map[string]*Copy
	content map[string]bool // users' objects in the cell's namespaces
	next    int
}

// The objects of the world: a path is a rule's kind, and the names of the object and its namespace.
var worldRules = map[string]*Rule{"Plain": plainRule, "Status": statusRule, "Nested": nestedRule, "InPlace": inPlaceRule, "Namespace": namespaceRule}

var worldPaths = []string{"Plain/p", "Plain/q", "Status/s", "InPlace/i", "InPlace/shared", "Namespace/n", "Namespace/m", "Namespace/default", "Nested/n/x", "Nested/m/y"}

func ruleOf(path string) *Rule   { return worldRules[strings.Split(path, "/")[0]] }
func nameOf(path string) string  { parts := strings.Split(path, "/"); return parts[len(parts)-1] }
func spaceOf(path string) string { return "Namespace/" + strings.Split(path, "/")[1] }

func newWorld() *world {
	return &world{hub: map[string]*Source{}, cell: map[string]*Copy{"InPlace/shared": copied("", "own"), "Namespace/default": copied("", "own")}, content: map[string]bool{}}
}

func (w *world) uid() types.UID { w.next++; return types.UID(fmt.Sprint(w.next)) }

// source returns a source of the world. Its digest depends on its UID, as that of a copy does.
func (w *world) source(uid types.UID, content string) *Source {
	return source(uid, content+"@"+string(uid))
}

func (w *world) look(path string) State {
	s := State{Rule: ruleOf(path), Name: nameOf(path), Want: w.hub[path], Have: w.cell[path]}
	if s.Rule.Namespaced {
		if space := w.cell[spaceOf(path)]; space == nil || space.deleting() {
			s.Namespace = NamespaceAbsent
		}
	}
	return s
}

// do executes an action as an API server would. It fails if the action does harm.
func (w *world) do(t *rapid.T, path string, action Action) (progress bool) {
	s := w.look(path)
	harmless := s.Have == nil || s.Have.source() != "" || s.Rule.shares(s.Name)
	if !harmless && action != Conflict && action != Foreign {
		t.Fatalf("%s %s, which is not a copy", action, path)
	}
	switch action {
	case Create:
		if s.Namespace != NamespaceActive || s.Have != nil {
			t.Fatalf("created %s where the API server would refuse it", path)
		}
		w.cell[path] = copied(s.Want.UID, string(s.Want.digest))
		w.cell[path].statusDigest = ""
	case Update:
		have := *s.Have
		have.Annotations, have.digest = map[string]string{SourceUIDAnnotation: string(s.Want.UID)}, s.Want.digest
		w.cell[path] = &have
	case UpdateStatus:
		s.Have.statusDigest = s.Want.statusDigest
	case Delete:
		w.delete(t, path, s)
	case Retire, Finalize:
		return w.dismiss(t, path, action, s)
	default:
		return false
	}
	return true
}

func (w *world) delete(t *rapid.T, path string, s State) {
	if s.Rule.shares(s.Name) {
		t.Fatalf("deleted %s, which every control plane has", path)
	}
	if s.Rule.isNamespace() {
		if s.Want == nil || !s.Want.deleting() {
			t.Fatalf("deleted %s, which is not being deleted on the hub", path)
		}
		w.cell[path] = going(s.Have)
		return
	}
	delete(w.cell, path)
}

func (w *world) dismiss(t *rapid.T, path string, action Action, s State) bool {
	if !s.Rule.isNamespace() || s.Rule.shares(s.Name) {
		t.Fatalf("%s %s", action, path)
	}
	if s.Want != nil && s.Want.deleting() {
		t.Fatalf("%s %s while it is being emptied", action, path)
	}
	if w.content[path] {
		return false // the action waits
	}
	if copies := w.copiesIn(path); len(copies) > 0 {
		for _, other := range copies {
			if s.Want != nil {
				delete(w.cell, other) // recreated with the namespace
			}
		}
		return s.Want != nil
	}
	if action == Retire {
		w.cell[path] = going(s.Have)
		return true
	}
	if !s.Have.deleting() {
		t.Fatalf("finalized %s, which is not terminating", path)
	}
	delete(w.cell, path)
	return true
}

func (w *world) copiesIn(namespace string) []string {
	return slices.DeleteFunc(slices.Clone(worldPaths), func(path string) bool {
		return !ruleOf(path).Namespaced || spaceOf(path) != namespace || w.cell[path] == nil
	})
}

// settle executes decisions in any order until there is nothing to do.
func (w *world) settle(t *rapid.T) {
	for round := 0; ; round++ {
		if round > 10*len(worldPaths) {
			t.Fatal("the decisions do not converge")
		}
		progress := false
		for _, path := range rapid.Permutation(worldPaths).Draw(t, "order") {
			progress = w.do(t, path, Decide(w.look(path))) || progress
		}
		if !progress {
			return
		}
	}
}

// TestDecideConverges changes the hub and the cell while decisions are executed. In the end the cell has what the hub has,
// and no other object was changed.
func TestDecideConverges(t *testing.T) {
	for round := range 20 { // each runs a hundred short scenarios
		t.Run(fmt.Sprint(round), rapid.MakeCheck(converges))
	}
}

func converges(t *rapid.T) {
	w := newWorld()
	path := rapid.SampledFrom(worldPaths)
	content := rapid.SampledFrom([]string{"a", "b", "c"})
	namespace := rapid.SampledFrom([]string{"Namespace/n", "Namespace/m"})
	t.Repeat(map[string]func(*rapid.T){
		"create on the hub": func(t *rapid.T) {
			p := path.Draw(t, "path")
			if w.hub[p] == nil && (!ruleOf(p).Namespaced || w.hub[spaceOf(p)] != nil && !w.hub[spaceOf(p)].deleting()) {
				w.hub[p] = w.source(w.uid(), content.Draw(t, "content"))
			}
		},
		"change on the hub": func(t *rapid.T) {
			p := path.Draw(t, "path")
			if former := w.hub[p]; former != nil {
				changed := w.source(former.UID, content.Draw(t, "content"))
				changed.DeletionTimestamp, changed.statusDigest = former.DeletionTimestamp, digest(content.Draw(t, "status"))
				w.hub[p] = changed
			}
		},
		"delete on the hub": func(t *rapid.T) {
			p := path.Draw(t, "path")
			if former := w.hub[p]; former != nil && !ruleOf(p).shares(nameOf(p)) {
				changed := *former
				w.hub[p] = leaving(&changed)
			}
		},
		"gone on the hub": func(t *rapid.T) {
			p := path.Draw(t, "path")
			if ruleOf(p).isNamespace() && slices.ContainsFunc(worldPaths, func(o string) bool { return ruleOf(o).Namespaced && spaceOf(o) == p && w.hub[o] != nil }) {
				return
			}
			delete(w.hub, p)
		},
		"drift in the cell": func(t *rapid.T) {
			p := path.Draw(t, "path")
			if have := w.cell[p]; have != nil && have.source() != "" {
				have.digest = "drift"
			}
		},
		"loss in the cell": func(t *rapid.T) {
			p := path.Draw(t, "path")
			if have := w.cell[p]; have != nil && have.source() != "" && !ruleOf(p).isNamespace() && !ruleOf(p).shares(nameOf(p)) {
				delete(w.cell, p)
			}
		},
		"namespace deleted in the cell": func(t *rapid.T) {
			p := namespace.Draw(t, "path")
			if have := w.cell[p]; have != nil && have.source() != "" {
				changed := *have
				w.cell[p] = going(&changed)
			}
		},
		"content comes": func(t *rapid.T) {
			p := namespace.Draw(t, "path")
			if have := w.cell[p]; have != nil && !have.deleting() {
				w.content[p] = true
			}
		},
		"content goes": func(t *rapid.T) { delete(w.content, namespace.Draw(t, "path")) },
		"somebody else's": func(t *rapid.T) {
			p := rapid.SampledFrom([]string{"Plain/q", "Namespace/m"}).Draw(t, "path")
			if w.cell[p] == nil {
				w.cell[p] = copied("", "foreign")
			}
		},
		"step": func(t *rapid.T) {
			p := path.Draw(t, "path")
			w.do(t, p, Decide(w.look(p)))
		},
		"": func(t *rapid.T) {
			for namespace := range w.content {
				if w.content[namespace] && w.cell[namespace] == nil {
					t.Fatalf("the content of %s is lost", namespace)
				}
			}
		},
	})
	w.settle(t)
	w.checkCopies(t)
	before := maps.Clone(w.cell)
	w.settle(t)
	if !maps.Equal(before, w.cell) {
		t.Fatal("an up-to-date cell was written to")
	}
}

// checkCopies compares the cell with the hub.
func (w *world) checkCopies(t *rapid.T) {
	for _, path := range worldPaths {
		s := w.look(path)
		switch {
		case s.Have != nil && s.Have.source() == "" && (s.Want == nil || !s.Rule.shares(s.Name)):
			if s.Have.digest != "foreign" && s.Have.digest != "own" {
				t.Errorf("%s is not a copy, and was changed", path)
			}
		case s.Rule.isNamespace() && s.Have != nil && s.Have.deleting():
			if !w.content[path] && (s.Want == nil || !s.Want.deleting()) {
				t.Errorf("%s is empty and still there", path)
			}
		case s.Rule.isNamespace() && s.Want == nil && s.Have != nil && !s.Rule.shares(s.Name):
			if !w.content[path] {
				t.Errorf("%s is empty, gone on the hub, and still there", path)
			}
		case s.Rule.shares(s.Name) && (s.Want == nil || s.Want.deleting()):
			if s.Have == nil {
				t.Errorf("%s, which every control plane has, is lost", path)
			}
		case s.Want == nil, s.Want.deleting() && !s.Rule.Lingers:
			if s.Have != nil {
				t.Errorf("%s is still there", path)
			}
		case s.Namespace != NamespaceActive, s.Want.deleting():
		case s.Have == nil:
			t.Errorf("%s is missing", path)
		case s.Have.digest != s.Want.digest || s.Have.source() != s.Want.UID:
			t.Errorf("%s differs: %v, want %v", path, s.Have, s.Want)
		case s.Rule.Part == ContentAndStatus && s.Have.statusDigest != s.Want.statusDigest:
			t.Errorf("the status of %s differs", path)
		}
	}
}

// TestTerminates counts the time for which a namespace terminates by the clock of the hub manager alone, whatever the cell says when it was deleted.
func TestTerminates(t *testing.T) {
	s := &session{terminating: map[string]termination{}}
	now := time.Now()
	for _, step := range []struct {
		uid   types.UID
		after time.Duration
		want  time.Duration
	}{
		{"one", 0, 0}, {"one", time.Second, time.Second}, {"one", finalizeAfter, finalizeAfter}, {"another", finalizeAfter, 0}, {"another", 2 * finalizeAfter, finalizeAfter},
	} {
		if got := s.terminates("shop", step.uid, now.Add(step.after)); got != step.want {
			t.Errorf("%s after %v: %v, want %v", step.uid, step.after, got, step.want)
		}
	}
}
