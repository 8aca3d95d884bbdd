package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/kubectl/pkg/cmd/util/editor"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/interpreter/scriptfile"
)

// customizationStore is where a customization that is edited comes from and goes to.
type customizationStore interface {
	// load returns the customization, and the others that it must not be in conflict with.
	load(ctx context.Context) (*configv1alpha1.ResourceInterpreterCustomization, []*configv1alpha1.ResourceInterpreterCustomization, error)
	// save replaces the one that was loaded, unless somebody else changed it. Of an invalidEditError the user is told in the editor.
	save(ctx context.Context, changed *configv1alpha1.ResourceInterpreterCustomization) error
	// place says in words where it is.
	place() string
}

// invalidEditError says what is wrong with a customization that was to be saved.
type invalidEditError struct{ error }

var errChangedMeanwhile = errors.New("somebody else has changed it since it was opened; open it again and take your changes over")

// store returns where the customization to edit is.
func (t *interpretation) store() (customizationStore, error) {
	switch {
	case len(t.files) > 1 || len(t.files) == 1 && t.files[0] == "-":
		return nil, errors.New("one file can be edited; name it with --filename")
	case len(t.files) == 1:
		return &customizationFile{path: t.files[0], name: t.name}, nil
	case t.name == "":
		return nil, errors.New("say what to edit: a file with --filename, or a customization of the federation by its name")
	}
	c, err := t.hub.client()
	if err != nil {
		return nil, err
	}
	return &hubCustomization{client: c, name: t.name}, nil
}

// edit opens the editor for the customization of a store until what is saved there is correct, or given up.
func (t *interpretation) edit(ctx context.Context, store customizationStore, out, errOut io.Writer) error {
	original, others, err := store.load(ctx)
	if err != nil {
		return err
	}
	text, err := scriptfile.Write(original)
	if err != nil {
		return err
	}
	session := editSession{editor: editor.NewDefaultEditor([]string{"KUBE_EDITOR", "EDITOR"}), explainRules: t.showDoc}
	fault := ""
	for {
		written, err := session.open(text, fault)
		if err != nil {
			return err
		}
		switch {
		case strings.TrimSpace(written) == "":
			session.discard()
			fmt.Fprintln(out, "Edit cancelled: the file is empty, nothing was changed.")
			return nil
		case fault != "" && sameLines(written, text):
			return session.kept(fmt.Errorf("edit cancelled, nothing was changed: %s", fault))
		}
		text = written
		changed := original.DeepCopy()
		if err := readEdited(text, changed, others); err != nil {
			fault = oneSentence(err)
			fmt.Fprintf(errOut, "Not saved yet: %s\n", fault)
			continue
		}
		if scriptfile.Same(original, changed) {
			session.discard()
			fmt.Fprintln(out, "Edit cancelled, no changes were made.")
			return nil
		}
		err = store.save(ctx, changed)
		if errors.As(err, new(invalidEditError)) {
			fault = oneSentence(err)
			fmt.Fprintf(errOut, "Not saved yet: %s\n", fault)
			continue
		}
		if err != nil {
			return session.kept(err)
		}
		session.discard()
		fmt.Fprintf(out, "Customization %s is changed %s.\n", changed.Name, store.place())
		return nil
	}
}

// readEdited brings a customization up to what was written and returns what is wrong with it.
func readEdited(text string, into *configv1alpha1.ResourceInterpreterCustomization, others []*configv1alpha1.ResourceInterpreterCustomization) error {
	if err := scriptfile.Read(text, into); err != nil {
		return err
	}
	if problems := validation.NameIsDNSSubdomain(into.Name, false); len(problems) > 0 {
		return fmt.Errorf("it cannot be called %q: %s", into.Name, strings.Join(problems, "; "))
	}
	for _, other := range others {
		if other.Name == into.Name {
			return fmt.Errorf("there is another customization called %s", into.Name)
		}
	}
	return interpreter.ValidateCustomization(into, others)
}

func sameLines(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }

// oneSentence returns what an error says, which may be several errors, on one line.
func oneSentence(err error) string {
	return strings.Join(strings.Split(strings.TrimSpace(err.Error()), "\n"), "; ")
}

// editSession is one file in the hands of an editor. It is not removed before its content is somewhere else.
type editSession struct {
	editor       editor.Editor
	explainRules bool
	file         string
}

// open lets the user edit a text and returns what was written, without explanations.
func (s *editSession) open(text, fault string) (string, error) {
	written, file, err := s.editor.LaunchTempFile("cellplane-interpret-", ".lua", strings.NewReader(scriptfile.Explain(text, fault, s.explainRules)))
	if _, missing := os.Stat(file); missing == nil {
		s.discard()
		s.file = file
	}
	if err != nil {
		if left, unreadable := os.ReadFile(s.file); unreadable == nil && fault == "" && scriptfile.Bare(string(left)) == text {
			s.discard() // nothing was written
		}
		return "", s.kept(fmt.Errorf("editing: %w; $KUBE_EDITOR or $EDITOR names another editor", err))
	}
	return scriptfile.Bare(string(written)), nil
}

// discard removes the file.
func (s *editSession) discard() {
	if s.file != "" {
		_ = os.Remove(s.file) // a temporary file
		s.file = ""
	}
}

// kept says with an error where the file is.
func (s *editSession) kept(err error) error {
	if s.file == "" {
		return err
	}
	return fmt.Errorf("%w; what was written is kept in %s", err, s.file)
}
