package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/simulate"
)

func newSchedule() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schedule",
		GroupID: groupClusters,
		Short:   "Explain and simulate the placement of workloads",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(newScheduleExplain(), newScheduleSimulate())
	return cmd
}

// workloadFlags are the flags of commands about a workload.
type workloadFlags struct {
	gatewayFlags
	namespace, output string
}

func (f *workloadFlags) add(cmd *cobra.Command) {
	f.gatewayFlags.add(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the workload")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "output format: json (default: text)")
}

func (f *workloadFlags) config() (*rest.Config, error) {
	if f.output != "" && f.output != "json" {
		return nil, fmt.Errorf("--output must be json, not %q", f.output)
	}
	return f.gatewayFlags.config()
}

func newScheduleExplain() *cobra.Command {
	var flags workloadFlags
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Show why a workload runs where it does",
		Long: `Show why a workload runs where it does: the result for each cluster in each of
the three tiers of scheduling. The decision is computed again from the current
state; nothing is changed.`,
		Example: `  cellplane schedule explain deploy/web
  cellplane schedule explain statefulset/db -n shop -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return explainWorkload(cmd.Context(), cmd.OutOrStdout(), &flags, args[0])
		},
	}
	flags.add(cmd)
	return cmd
}

func explainWorkload(ctx context.Context, out io.Writer, flags *workloadFlags, argument string) error {
	resource, name, err := splitWorkload(argument)
	if err != nil {
		return err
	}
	config, err := flags.config()
	if err != nil {
		return err
	}
	kind, err := kindOf(config, resource)
	if err != nil {
		return err
	}
	world, err := readFederation(ctx, config)
	if err != nil {
		return err
	}
	binding := &workv1alpha2.ResourceBinding{}
	err = world.client.Get(ctx, client.ObjectKey{Namespace: flags.namespace, Name: names.BindingName(kind.Kind, name)}, binding)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the binding of %s %s/%s: %w", kind.Kind, flags.namespace, name, err)
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s has no binding: either it does not exist, or no policy selects it", kind.Kind, flags.namespace, name)
	}
	report, err := world.decide(&question{
		title: fmt.Sprintf("%s %s/%s", kind.Kind, flags.namespace, name), spec: &binding.Spec, affinity: binding.Status.SchedulerObservedAffinityName,
		profile: profileName(binding.Annotations, binding.Spec.SchedulerName), ready: readyReplicas(&binding.Spec, &binding.Status), running: true,
	})
	if err != nil {
		return err
	}
	return report.print(out, flags.output)
}

// splitWorkload returns the resource and the name of a workload.
func splitWorkload(argument string) (resource, name string, err error) {
	resource, name, ok := strings.Cut(argument, "/")
	if !ok || resource == "" || name == "" {
		return "", "", fmt.Errorf("%q is not a workload; give its kind and name, such as deploy/web", argument)
	}
	return resource, name, nil
}

// kindOf finds a kind by its resource name or short name.
func kindOf(config *rest.Config, resource string) (schema.GroupVersionKind, error) {
	finder, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	cached := memory.NewMemCacheClient(finder)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	partial := schema.ParseGroupResource(resource).WithVersion("")
	kind, err := mapper.KindFor(partial)
	if err != nil {
		return kind, fmt.Errorf("finding the kind %q: %w", resource, err)
	}
	return kind, nil
}

// profileName returns the scheduling profile of a binding or policy.
func profileName(annotations map[string]string, schedulerName string) string {
	if name := annotations[names.SchedulingProfileAnnotation]; name != "" {
		return name
	}
	if schedulerName == defaultScheduler {
		return ""
	}
	return schedulerName
}

// defaultScheduler is the scheduler name of bindings without a profile.
const defaultScheduler = "default-scheduler"

// readyReplicas sums up the ready replicas that clusters report. Clusters that report none count as ready.
func readyReplicas(spec *workv1alpha2.ResourceBindingSpec, status *workv1alpha2.ResourceBindingStatus) int32 {
	ready := map[string]int32{}
	for i := range status.AggregatedStatus {
		item := &status.AggregatedStatus[i]
		if item.Status == nil {
			continue
		}
		var reported struct{ Replicas, ReadyReplicas *int32 }
		if err := json.Unmarshal(item.Status.Raw, &reported); err != nil {
			continue
		}
		if reported.Replicas != nil || reported.ReadyReplicas != nil {
			ready[item.ClusterName] = ptr.Deref(reported.ReadyReplicas, 0) // zero is omitted
		}
	}
	total := int32(0)
	for i := range spec.Clusters {
		if count, known := ready[spec.Clusters[i].Name]; known {
			total += min(count, spec.Clusters[i].Replicas)
		} else {
			total += spec.Clusters[i].Replicas
		}
	}
	return total
}

func newScheduleSimulate() *cobra.Command {
	var flags workloadFlags
	var file, profile string
	replicas := int32(-1)
	cmd := &cobra.Command{
		Use:   "simulate -f FILE",
		Short: "Show where a workload would run, and at what cost",
		Long: `Show whether a workload would fit, where it would run, and at what cost.
Nothing is created. The exit code is 2 if the workload does not fit.

The file contains the workload, and optionally its policy and scheduling
profile. Without a policy, replicas are divided by the free capacity of
clusters.`,
		Example: `  cellplane schedule simulate -f web.yaml --replicas 500
  cellplane schedule simulate -f web.yaml --profile own-first -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return simulateWorkload(cmd.Context(), cmd.OutOrStdout(), &flags, file, profile, replicas)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with the workload and optionally its policy, or - for standard input (required)")
	cmd.Flags().Int32Var(&replicas, "replicas", replicas, "number of replicas (default: that of the workload)")
	cmd.Flags().StringVar(&profile, "profile", "", "name of the SchedulingProfile (default: that of the policy)")
	return cmd
}

func simulateWorkload(ctx context.Context, out io.Writer, flags *workloadFlags, file, profile string, replicas int32) error {
	if file == "" {
		return errors.New("--filename is missing: give a file with the workload, such as -f web.yaml")
	}
	config, err := flags.config()
	if err != nil {
		return err
	}
	workload, policy, profiles, err := readWorkload(file)
	if err != nil {
		return err
	}
	asked, err := ask(ctx, workload, policy, flags.namespace, replicas)
	if err != nil {
		return err
	}
	if profile != "" {
		asked.profile = profile
	}
	world, err := readFederation(ctx, config)
	if err != nil {
		return err
	}
	maps.Copy(world.profiles, profiles)
	report, err := world.decide(asked)
	if err != nil {
		return err
	}
	if err := report.print(out, flags.output); err != nil {
		return err
	}
	if report.Failure != "" {
		return exitError{code: 2}
	}
	return nil
}

// readWorkload reads a workload, and optionally its policy and profiles.
func readWorkload(file string) (*unstructured.Unstructured, *policyv1alpha1.PropagationPolicy, map[string]*cellplanev1alpha1.SchedulingProfile, error) {
	var reader io.Reader = os.Stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, nil, nil, err
		}
		defer opened.Close()
		reader = opened
	}
	var workload *unstructured.Unstructured
	var policy *policyv1alpha1.PropagationPolicy
	profiles := map[string]*cellplanev1alpha1.SchedulingProfile{}
	decoder := yamlutil.NewYAMLOrJSONDecoder(reader, 4096)
	for {
		object := map[string]any{}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, nil, fmt.Errorf("reading %s: %w", file, err)
		}
		found := &unstructured.Unstructured{Object: object}
		switch {
		case len(object) == 0:
		case found.GroupVersionKind().Group == policyv1alpha1.GroupName:
			policy = &policyv1alpha1.PropagationPolicy{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, policy); err != nil {
				return nil, nil, nil, fmt.Errorf("reading the policy in %s: %w", file, err)
			}
		case found.GroupVersionKind().Group == cellplanev1alpha1.GroupName && found.GetKind() == "SchedulingProfile":
			profile := &cellplanev1alpha1.SchedulingProfile{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, profile); err != nil {
				return nil, nil, nil, fmt.Errorf("reading the profile in %s: %w", file, err)
			}
			profiles[profile.Name] = profile
		case workload == nil:
			workload = found
		default:
			return nil, nil, nil, fmt.Errorf("%s has both %s %s and %s %s; only one workload can be simulated at a time", file, workload.GetKind(), workload.GetName(), found.GetKind(), found.GetName())
		}
	}
	if workload == nil {
		return nil, nil, nil, fmt.Errorf("%s has no workload", file)
	}
	return workload, policy, profiles, nil
}

// ask converts a workload and a policy into the input of the scheduler.
func ask(ctx context.Context, workload *unstructured.Unstructured, policy *policyv1alpha1.PropagationPolicy, namespace string, replicas int32) (*question, error) {
	interpreters := interpreter.New(interpreter.Options{})
	found, requirements, err := interpreters.Replicas(ctx, workload)
	if err != nil {
		return nil, fmt.Errorf("reading the replicas of %s %s: %w", workload.GetKind(), workload.GetName(), err)
	}
	if replicas >= 0 {
		found = replicas
	}
	if workload.GetNamespace() != "" {
		namespace = workload.GetNamespace()
	}
	asked := &question{title: fmt.Sprintf("%s %s/%s", workload.GetKind(), namespace, workload.GetName()), spec: &workv1alpha2.ResourceBindingSpec{
		Resource: workv1alpha2.ObjectReference{APIVersion: workload.GetAPIVersion(), Kind: workload.GetKind(), Namespace: namespace, Name: workload.GetName()},
		Replicas: found, ReplicaRequirements: requirements,
		Placement: &policyv1alpha1.Placement{ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{
			ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided,
			WeightPreference:      &policyv1alpha1.ClusterPreferences{DynamicWeight: policyv1alpha1.DynamicWeightByAvailableReplicas},
		}},
	}}
	if policy != nil {
		asked.spec.Placement, asked.profile = &policy.Spec.Placement, profileName(policy.Annotations, policy.Spec.SchedulerName)
	}
	if asked.pod, _, err = simulate.FromWorkload(namespace, workload); err != nil {
		return nil, fmt.Errorf("reading the pods of %s: %w", asked.title, err)
	}
	return asked, nil
}

// question is the input of a scheduling decision.
type question struct {
	title    string
	spec     *workv1alpha2.ResourceBindingSpec
	affinity string
	profile  string
	pod      *simulate.Pod // nil if unknown
	ready    int32
	running  bool
}

func (q *question) progress(now time.Time) schedule.Progress {
	return schedule.Progress{Now: now, Ready: q.ready}
}
