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
		Short:   "Test and edit resource interpreter customizations",
		Long: `Test resource interpreter customizations without a federation, and edit them.

ResourceInterpreterCustomizations in files take precedence over the built-in
interpreters, as in a federation. Without files the built-in interpreters for
Kubernetes and third-party kinds answer.

With --edit all scripts of one customization open in $KUBE_EDITOR or $EDITOR.
The customization is read from the file, which is created if missing, or
without a file from the federation. It is validated before it is written back.`,
		Example: `  cellplane interpret -f customization.yaml --check
  cellplane interpret -f customization.yaml --operation interpretHealth --observed-file object.yaml
  cellplane interpret --operation aggregateStatus --desired-file template.yaml --status-file -
  cellplane interpret -f customization.yaml --operation interpretRollout --observed-file object.yaml
  cellplane interpret -f customization.yaml --operation reviseRollout --desired-file object.yaml \
    --desired-replica 3 --max-surge 1 --max-unavailable 0
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
	flags.StringArrayVarP(&t.files, "filename", "f", nil, "file with ResourceInterpreterCustomizations, or - for standard input; may be repeated")
	flags.BoolVar(&t.check, "check", false, "only validate the customizations")
	flags.StringVar(&t.operation, "operation", "", "interpreter operation to run, such as InterpretReplica or InterpretHealth")
	flags.StringVar(&t.desiredFile, "desired-file", "", "file with the desired object")
	flags.StringVar(&t.observedFile, "observed-file", "", "file with the observed object of a member")
	flags.StringVar(&t.statusFile, "status-file", "", "file with the statuses of members, in the form of the aggregatedStatus of a binding")
	flags.Int32Var(&t.grant.Replicas, "desired-replica", 0, "number of replicas for ReviseReplica and ReviseRollout")
	flags.Int32Var(&t.grant.MaxSurge, "max-surge", 0, "how many pods there may be above the replicas, for ReviseRollout")
	flags.Int32Var(&t.grant.MaxUnavailable, "max-unavailable", 0, "how many pods may be missing from the replicas, for ReviseRollout")
	flags.BoolVar(&t.grant.Paused, "paused", false, "the update is to stop, for ReviseRollout")
	flags.BoolVar(&t.wantsEdit, "edit", false, "edit the scripts of a customization")
	flags.BoolVar(&t.showDoc, "show-doc", false, "show in the editor the parameters and result of each function")
	t.hub.add(cmd)
	return cmd
}

// interpretation is one run of the interpreter.
type interpretation struct {
	files                                 []string
	check                                 bool
	operation                             string
	desiredFile, observedFile, statusFile string
	grant                                 configv1alpha1.RolloutGrant
	stdin                                 io.Reader // content of the file -

	wantsEdit, showDoc bool
	name               string // of the customization to edit
	hub                hubFlags
}

// complete checks the flags and arguments.
func (t *interpretation) complete(args []string) error {
	modes := 0
	for _, given := range []bool{t.check, t.operation != "", t.wantsEdit} {
		if given {
			modes++
		}
	}
	if modes != 1 {
		return errors.New("give exactly one of --check, --edit, or --operation with one of InterpretReplica, InterpretComponent, ReviseReplica, Retain, AggregateStatus, InterpretStatus, InterpretHealth, InterpretDependency, InterpretRollout, ReviseRollout")
	}
	if len(args) == 0 {
		return nil
	}
	if !t.wantsEdit {
		return fmt.Errorf("unexpected argument %q; only --edit takes a name", args[0])
	}
	t.name = args[0]
	return nil
}

// operations are all operations of an interpreter.
var operations = []configv1alpha1.InterpreterOperation{
	configv1alpha1.InterpreterOperationInterpretReplica, configv1alpha1.InterpreterOperationInterpretComponent,
	configv1alpha1.InterpreterOperationReviseReplica, configv1alpha1.InterpreterOperationRetain, configv1alpha1.InterpreterOperationAggregateStatus,
	configv1alpha1.InterpreterOperationInterpretStatus, configv1alpha1.InterpreterOperationInterpretHealth, configv1alpha1.InterpreterOperationInterpretDependency,
	configv1alpha1.InterpreterOperationInterpretRollout, configv1alpha1.InterpreterOperationReviseRollout,
}

// operationCalled finds an operation by its name, ignoring case.
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
	interpreters := interpreter.New(interpreter.Options{})
	if err := interpreters.SetCustomizations(customizations); err != nil {
		return err
	}
	answer, err := t.ask(ctx, interpreters)
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

// checkCustomizations validates each customization, also for conflicts with the others.
func checkCustomizations(all []*configv1alpha1.ResourceInterpreterCustomization, out io.Writer) error {
	if len(all) == 0 {
		return errors.New("there is nothing to check; give a file with --filename")
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

// ask runs the operation.
func (t *interpretation) ask(ctx context.Context, interpreters *interpreter.Interpreter) (map[string]any, error) {
	op, err := operationCalled(t.operation)
	if err != nil {
		return nil, err
	}
	switch op {
	case configv1alpha1.InterpreterOperationAggregateStatus:
		return t.aggregate(ctx, interpreters)
	case configv1alpha1.InterpreterOperationRetain:
		return t.retain(ctx, interpreters)
	default:
		object, err := t.object()
		if err != nil {
			return nil, err
		}
		if (op == configv1alpha1.InterpreterOperationInterpretRollout || op == configv1alpha1.InterpreterOperationReviseRollout) && !interpreters.Supports(object.GroupVersionKind(), op) {
			return nil, fmt.Errorf("no customization has %s for %s %s", op, object.GetAPIVersion(), object.GetKind())
		}
		return t.askAbout(ctx, interpreters, op, object)
	}
}

func (t *interpretation) askAbout(ctx context.Context, interpreters *interpreter.Interpreter, op configv1alpha1.InterpreterOperation, object *unstructured.Unstructured) (map[string]any, error) {
	switch op {
	case configv1alpha1.InterpreterOperationInterpretReplica:
		replicas, requirements, err := interpreters.Replicas(ctx, object)
		return map[string]any{"replica": replicas, "requires": requirements}, err
	case configv1alpha1.InterpreterOperationInterpretComponent:
		components, err := interpreters.Components(ctx, object)
		return map[string]any{"components": components}, err
	case configv1alpha1.InterpreterOperationReviseReplica:
		revised, err := interpreters.ReviseReplica(ctx, object, t.grant.Replicas)
		return map[string]any{"revised": revised}, err
	case configv1alpha1.InterpreterOperationInterpretStatus:
		status, err := interpreters.ReflectStatus(ctx, object)
		return map[string]any{"status": status}, err
	case configv1alpha1.InterpreterOperationInterpretHealth:
		health, err := interpreters.Health(ctx, object)
		return map[string]any{"healthy": health == workv1alpha2.ResourceHealthy}, err
	case configv1alpha1.InterpreterOperationInterpretDependency:
		dependencies, err := interpreters.Dependencies(ctx, object)
		return map[string]any{"dependencies": dependencies}, err
	case configv1alpha1.InterpreterOperationInterpretRollout:
		rollout, err := interpreters.Rollout(ctx, object)
		return map[string]any{"rollout": rollout}, err
	case configv1alpha1.InterpreterOperationReviseRollout:
		revised, err := interpreters.ReviseRollout(ctx, object, t.grant)
		return map[string]any{"revised": revised}, err
	default:
		return nil, fmt.Errorf("%s needs more than one object", op)
	}
}

func (t *interpretation) aggregate(ctx context.Context, interpreters *interpreter.Interpreter) (map[string]any, error) {
	template, err := t.object()
	if err != nil {
		return nil, err
	}
	if t.statusFile == "" {
		return nil, errors.New("--status-file is missing: give the statuses of members")
	}
	items, err := readAllDocuments[workv1alpha2.AggregatedStatusItem](t.stdin, t.statusFile)
	if err != nil {
		return nil, err
	}
	statuses := make([]workv1alpha2.AggregatedStatusItem, 0, len(items))
	for _, item := range items {
		statuses = append(statuses, *item)
	}
	aggregated, err := interpreters.AggregateStatus(ctx, template, statuses)
	return map[string]any{"aggregatedStatus": aggregated}, err
}

func (t *interpretation) retain(ctx context.Context, interpreters *interpreter.Interpreter) (map[string]any, error) {
	desired, err := t.readObject(t.desiredFile, "--desired-file")
	if err != nil {
		return nil, err
	}
	observed, err := t.readObject(t.observedFile, "--observed-file")
	if err != nil {
		return nil, err
	}
	retained, err := interpreters.Retain(ctx, desired, observed)
	return map[string]any{"retained": retained}, err
}

// object returns the single object that most operations need.
func (t *interpretation) object() (*unstructured.Unstructured, error) {
	if t.observedFile != "" && t.desiredFile != "" {
		return nil, errors.New("give one object, with --desired-file or --observed-file")
	}
	if t.observedFile != "" {
		return t.readObject(t.observedFile, "--observed-file")
	}
	return t.readObject(t.desiredFile, "--desired-file")
}

func (t *interpretation) readObject(file, flag string) (*unstructured.Unstructured, error) {
	if file == "" {
		return nil, fmt.Errorf("give the object with %s", flag)
	}
	objects, err := readAllDocuments[map[string]any](t.stdin, file)
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%s has %d objects, want 1", file, len(objects))
	}
	object := &unstructured.Unstructured{Object: *objects[0]}
	if object.GetKind() == "" || object.GetAPIVersion() == "" {
		return nil, fmt.Errorf("%s has an object without apiVersion or kind", file)
	}
	return object, nil
}

// readAllDocuments reads the documents of files. A document is one value or a list of values.
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
