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

// customizationStore loads and saves the customization that is edited.
type customizationStore interface {
	// load returns the customization, and the others that it must not conflict with.
	load(ctx context.Context) (*configv1alpha1.ResourceInterpreterCustomization, []*configv1alpha1.ResourceInterpreterCustomization, error)
	// save replaces the loaded customization, unless somebody else changed it. An invalidEditError is shown in the editor.
	save(ctx context.Context, changed *configv1alpha1.ResourceInterpreterCustomization) error
	// place describes the location.
	place() string
}

// invalidEditError is returned for an invalid customization.
type invalidEditError struct{ error }

var errChangedMeanwhile = errors.New("somebody else has changed it since it was opened; open it again and repeat your changes")

// store returns the store of the customization to edit.
func (t *interpretation) store() (customizationStore, error) {
	switch {
	case len(t.files) > 1 || len(t.files) == 1 && t.files[0] == "-":
		return nil, errors.New("only one file can be edited; give it with --filename")
	case len(t.files) == 1:
		return &customizationFile{path: t.files[0], name: t.name}, nil
	case t.name == "":
		return nil, errors.New("give a file with --filename, or the name of a customization in the federation")
	}
	c, err := t.hub.client()
	if err != nil {
		return nil, err
	}
	return &hubCustomization{client: c, name: t.name}, nil
}

// edit opens the editor until the customization is valid and saved, or the user cancels.
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
	problem := ""
	for {
		written, err := session.open(text, problem)
		if err != nil {
			return err
		}
		switch {
		case strings.TrimSpace(written) == "":
			session.discard()
			fmt.Fprintln(out, "Edit cancelled: the file is empty, nothing was changed.")
			return nil
		case problem != "" && sameLines(written, text):
			return session.kept(fmt.Errorf("edit cancelled, nothing was changed: %s", problem))
		}
		text = written
		changed := original.DeepCopy()
		if err := readEdited(text, changed, others); err != nil {
			problem = oneSentence(err)
			fmt.Fprintf(errOut, "Not saved yet: %s\n", problem)
			continue
		}
		if scriptfile.Same(original, changed) {
			session.discard()
			fmt.Fprintln(out, "Edit cancelled, no changes were made.")
			return nil
		}
		err = store.save(ctx, changed)
		if errors.As(err, new(invalidEditError)) {
			problem = oneSentence(err)
			fmt.Fprintf(errOut, "Not saved yet: %s\n", problem)
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

// readEdited parses the edited text into a customization and validates it.
func readEdited(text string, into *configv1alpha1.ResourceInterpreterCustomization, others []*configv1alpha1.ResourceInterpreterCustomization) error {
	if err := scriptfile.Read(text, into); err != nil {
		return err
	}
	if problems := validation.NameIsDNSSubdomain(into.Name, false); len(problems) > 0 {
		return fmt.Errorf("invalid name %q: %s", into.Name, strings.Join(problems, "; "))
	}
	for _, other := range others {
		if other.Name == into.Name {
			return fmt.Errorf("there is another customization with the name %s", into.Name)
		}
	}
	return interpreter.ValidateCustomization(into, others)
}

func sameLines(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }

// oneSentence returns the message of an error, or of several joined ones, in one line.
func oneSentence(err error) string {
	return strings.Join(strings.Split(strings.TrimSpace(err.Error()), "\n"), "; ")
}

// editSession is a temporary file in an editor. It is kept until its content is saved.
type editSession struct {
	editor       editor.Editor
	explainRules bool
	file         string
}

// open opens a text in the editor and returns the result, without explanations.
func (s *editSession) open(text, problem string) (string, error) {
	written, file, err := s.editor.LaunchTempFile("cellplane-interpret-", ".lua", strings.NewReader(scriptfile.Explain(text, problem, s.explainRules)))
	if _, missing := os.Stat(file); missing == nil {
		s.discard()
		s.file = file
	}
	if err != nil {
		if left, unreadable := os.ReadFile(s.file); unreadable == nil && problem == "" && scriptfile.Bare(string(left)) == text {
			s.discard() // nothing was changed
		}
		return "", s.kept(fmt.Errorf("editing: %w; set another editor with $KUBE_EDITOR or $EDITOR", err))
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

// kept adds the location of the file to an error.
func (s *editSession) kept(err error) error {
	if s.file == "" {
		return err
	}
	return fmt.Errorf("%w; your text is kept in %s", err, s.file)
}
