package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter"
)

func newInterpret() *cobra.Command {
	var t interpretation
	cmd := &cobra.Command{
		Use:     "interpret [-f customization.yaml] (--check | --operation OPERATION | --edit [NAME])",
		GroupID: groupClusters,
		Short:   "Try out what objects mean to the federation, without one, and edit it",
		Long: `Try out what objects mean to the federation, without one, and edit it.

ResourceInterpreterCustomizations in the files take precedence over what is built in, as in a federation. Without any, the
answer is that of Kubernetes' own kinds and of the third-party kinds that are known.

With --edit all scripts of one customization open in the editor that $KUBE_EDITOR or $EDITOR names: of a file, which is made if there
is none, or without a file that of the federation. What is saved is checked before it is written back.`,
		Example: `  cellplane interpret -f customization.yaml --check
  cellplane interpret -f customization.yaml --operation interpretHealth --observed-file object.yaml
  cellplane interpret --operation aggregateStatus --desired-file template.yaml --status-file -
  cellplane interpret -f customization.yaml --edit --show-doc
  cellplane interpret --edit my-customization`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.stdin = cmd.InOrStdin()
			if err := t.complete(args); err != nil {
				return err
			}
			if !t.wantsEdit {
				return t.run(cmd.Context(), cmd.OutOrStdout())
			}
			store, err := t.store()
			if err != nil {
				return err
			}
			return t.edit(cmd.Context(), store, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&t.files, "filename", "f", nil, "file with ResourceInterpreterCustomizations, - for the standard input; may be given several times")
	flags.BoolVar(&t.check, "check", false, "only look for mistakes in the customizations")
	flags.StringVar(&t.operation, "operation", "", "what to ask, like InterpretReplica or InterpretHealth")
	flags.StringVar(&t.desiredFile, "desired-file", "", "file with the object as the federation wants it")
	flags.StringVar(&t.observedFile, "observed-file", "", "file with the object as it is in a member")
	flags.StringVar(&t.statusFile, "status-file", "", "file with the members' statuses, as in the aggregatedStatus of a binding")
	flags.Int32Var(&t.replicas, "desired-replica", 0, "replicas that ReviseReplica sets")
	flags.BoolVar(&t.wantsEdit, "edit", false, "edit the scripts of a customization")
	flags.BoolVar(&t.showDoc, "show-doc", false, "say in the editor what the function of each rule gets and returns")
	t.hub.add(cmd)
	return cmd
}

// interpretation is one question to the interpreter.
type interpretation struct {
	files                                 []string
	check                                 bool
	operation                             string
	desiredFile, observedFile, statusFile string
	replicas                              int32
	stdin                                 io.Reader // what a file called - is

	wantsEdit, showDoc bool
	name               string // of the customization to edit
	hub                hubFlags
}

// complete takes the arguments and says what is missing or too much.
func (t *interpretation) complete(args []string) error {
	wishes := 0
	for _, wish := range []bool{t.check, t.operation != "", t.wantsEdit} {
		if wish {
			wishes++
		}
	}
	if wishes != 1 {
		return errors.New("say what to do: --check, --edit, or --operation with one of InterpretReplica, InterpretComponent, ReviseReplica, Retain, AggregateStatus, InterpretStatus, InterpretHealth, InterpretDependency")
	}
	if len(args) == 0 {
		return nil
	}
	if !t.wantsEdit {
		return fmt.Errorf("%q is one word too many; only --edit takes a name", args[0])
	}
	t.name = args[0]
	return nil
}

// operations are all that can be asked.
var operations = []configv1alpha1.InterpreterOperation{
	configv1alpha1.InterpreterOperationInterpretReplica, configv1alpha1.InterpreterOperationInterpretComponent,
	configv1alpha1.InterpreterOperationReviseReplica, configv1alpha1.InterpreterOperationRetain, configv1alpha1.InterpreterOperationAggregateStatus,
	configv1alpha1.InterpreterOperationInterpretStatus, configv1alpha1.InterpreterOperationInterpretHealth, configv1alpha1.InterpreterOperationInterpretDependency,
}

// operationCalled returns the operation of a name, however it is capitalised.
func operationCalled(name string) (configv1alpha1.InterpreterOperation, error) {
	for _, op := range operations {
		if strings.EqualFold(string(op), name) {
			return op, nil
		}
	}
	return "", fmt.Errorf("there is no operation %q", name)
}

func (t *interpretation) run(ctx context.Context, out io.Writer) error {
	customizations, err := readAllDocuments[configv1alpha1.ResourceInterpreterCustomization](t.stdin, t.files...)
	if err != nil {
		return err
	}
	if t.check {
		return checkCustomizations(customizations, out)
	}
	meaning := interpreter.New(interpreter.Options{})
	if err := meaning.SetCustomizations(customizations); err != nil {
		return err
	}
	answer, err := t.ask(ctx, meaning)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(answer)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// checkCustomizations looks for mistakes in each, and for conflicts with the others.
func checkCustomizations(all []*configv1alpha1.ResourceInterpreterCustomization, out io.Writer) error {
	if len(all) == 0 {
		return errors.New("there is nothing to check; name a file with --filename")
	}
	var errs []error
	for i, c := range all {
		others := slices.Delete(slices.Clone(all), i, i+1)
		if err := interpreter.ValidateCustomization(c, others); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
			continue
		}
		if _, err := fmt.Fprintf(out, "%s: %s %s: correct\n", c.Name, c.Spec.Target.APIVersion, c.Spec.Target.Kind); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// ask returns the answer of the interpreter by name.
func (t *interpretation) ask(ctx context.Context, meaning *interpreter.Interpreter) (map[string]any, error) {
	op, err := operationCalled(t.operation)
	if err != nil {
		return nil, err
	}
	switch op {
	case configv1alpha1.InterpreterOperationAggregateStatus:
		return t.aggregate(ctx, meaning)
	case configv1alpha1.InterpreterOperationRetain:
		return t.retain(ctx, meaning)
	default:
		object, err := t.object()
		if err != nil {
			return nil, err
		}
		return t.askAbout(ctx, meaning, op, object)
	}
}

func (t *interpretation) askAbout(ctx context.Context, meaning *interpreter.Interpreter, op configv1alpha1.InterpreterOperation, object *unstructured.Unstructured) (map[string]any, error) {
	switch op {
	case configv1alpha1.InterpreterOperationInterpretReplica:
		replicas, requirements, err := meaning.Replicas(ctx, object)
		return map[string]any{"replica": replicas, "requires": requirements}, err
	case configv1alpha1.InterpreterOperationInterpretComponent:
		components, err := meaning.Components(ctx, object)
		return map[string]any{"components": components}, err
	case configv1alpha1.InterpreterOperationReviseReplica:
		revised, err := meaning.ReviseReplica(ctx, object, t.replicas)
		return map[string]any{"revised": revised}, err
	case configv1alpha1.InterpreterOperationInterpretStatus:
		status, err := meaning.ReflectStatus(ctx, object)
		return map[string]any{"status": status}, err
	case configv1alpha1.InterpreterOperationInterpretHealth:
		health, err := meaning.Health(ctx, object)
		return map[string]any{"healthy": health == workv1alpha2.ResourceHealthy}, err
	case configv1alpha1.InterpreterOperationInterpretDependency:
		dependencies, err := meaning.Dependencies(ctx, object)
		return map[string]any{"dependencies": dependencies}, err
	default:
		return nil, fmt.Errorf("%s needs more than one object", op)
	}
}

func (t *interpretation) aggregate(ctx context.Context, meaning *interpreter.Interpreter) (map[string]any, error) {
	template, err := t.object()
	if err != nil {
		return nil, err
	}
	if t.statusFile == "" {
		return nil, errors.New("name the members' statuses with --status-file")
	}
	items, err := readAllDocuments[workv1alpha2.AggregatedStatusItem](t.stdin, t.statusFile)
	if err != nil {
		return nil, err
	}
	statuses := make([]workv1alpha2.AggregatedStatusItem, 0, len(items))
	for _, item := range items {
		statuses = append(statuses, *item)
	}
	aggregated, err := meaning.AggregateStatus(ctx, template, statuses)
	return map[string]any{"aggregatedStatus": aggregated}, err
}

func (t *interpretation) retain(ctx context.Context, meaning *interpreter.Interpreter) (map[string]any, error) {
	desired, err := t.readObject(t.desiredFile, "--desired-file")
	if err != nil {
		return nil, err
	}
	observed, err := t.readObject(t.observedFile, "--observed-file")
	if err != nil {
		return nil, err
	}
	retained, err := meaning.Retain(ctx, desired, observed)
	return map[string]any{"retained": retained}, err
}

// object returns the object that is asked about; most operations know but one.
func (t *interpretation) object() (*unstructured.Unstructured, error) {
	if t.observedFile != "" && t.desiredFile != "" {
		return nil, errors.New("name one object, with --desired-file or --observed-file")
	}
	if t.observedFile != "" {
		return t.readObject(t.observedFile, "--observed-file")
	}
	return t.readObject(t.desiredFile, "--desired-file")
}

func (t *interpretation) readObject(file, flag string) (*unstructured.Unstructured, error) {
	if file == "" {
		return nil, fmt.Errorf("name the object with %s", flag)
	}
	objects, err := readAllDocuments[map[string]any](t.stdin, file)
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%s has %d objects, one is needed", file, len(objects))
	}
	object := &unstructured.Unstructured{Object: *objects[0]}
	if object.GetKind() == "" || object.GetAPIVersion() == "" {
		return nil, fmt.Errorf("%s has an object without apiVersion or kind", file)
	}
	return object, nil
}

// readAllDocuments reads the documents of files, each one value or a list of them.
func readAllDocuments[T any](stdin io.Reader, files ...string) ([]*T, error) {
	var all []*T
	for _, file := range files {
		if err := readFile(stdin, file, &all); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
	}
	return all, nil
}

func readFile[T any](stdin io.Reader, file string, into *[]*T) error {
	if file == "-" {
		return readDocuments(stdin, into)
	}
	stream, err := os.Open(file)
	if err != nil {
		return err
	}
	defer stream.Close()
	return readDocuments(stream, into)
}

func readDocuments[T any](stream io.Reader, into *[]*T) error {
	documents := yamlutil.NewYAMLReader(bufio.NewReader(stream))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var list []*T
		if yaml.Unmarshal(document, &list) == nil {
			*into = append(*into, list...)
			continue
		}
		value := new(T)
		if err := yaml.UnmarshalStrict(document, value); err != nil {
			return err
		}
		*into = append(*into, value)
	}
}
