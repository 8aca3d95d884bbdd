package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/rollout"
)

func newRollout() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rollout",
		GroupID: groupClusters,
		Short:   "Follow rolling updates cluster by cluster, stop and undo them",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(newRolloutStatus(), newRolloutHistory(), newRolloutUndo(), newRolloutPause(), newRolloutResume(), newRolloutApprove(), newRolloutExplain())
	return cmd
}

func newRolloutStatus() *cobra.Command {
	var flags workloadFlags
	watch, timeout := true, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "status KIND/NAME",
		Short: "Show how far each cluster is, and what it waits for",
		Long: `Show how far each cluster is with the rolling update of a workload, what it may
do by its part of maxSurge and maxUnavailable, and what it waits for.

It ends when the update has finished. With --watch=false or -o json it prints
the present state; the exit code is 2 if the update has not finished.`,
		Example: `  cellplane rollout status deploy/web
  cellplane rollout status deploy/web -n shop --watch=false`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := openRollout(&flags, args[0])
			if err != nil {
				return err
			}
			if watch && flags.output == "" {
				return reader.follow(cmd.Context(), cmd.OutOrStdout(), timeout)
			}
			return reader.once(cmd.Context(), cmd.OutOrStdout(), flags.output)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", watch, "show changes until the update has finished")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait; 0 means without end")
	return cmd
}

// rolloutReader reads the rollout of one workload.
type rolloutReader struct {
	client          client.Client
	typed           kubernetes.Interface
	kind            schema.GroupVersionKind
	namespace, name string
}

func openRollout(flags *workloadFlags, argument string) (*rolloutReader, error) {
	resource, name, err := splitWorkload(argument)
	if err != nil {
		return nil, err
	}
	config, err := flags.config()
	if err != nil {
		return nil, err
	}
	kind, err := kindOf(config, resource)
	if err != nil {
		return nil, err
	}
	connected, err := newClient(config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &rolloutReader{client: connected, typed: typed, kind: kind, namespace: flags.namespace, name: name}, nil
}

func (r *rolloutReader) read(ctx context.Context) (*rolloutState, error) {
	template, binding, err := r.objects(ctx)
	if err != nil {
		return nil, err
	}
	return newRolloutState(template, binding)
}

// objects reads the workload and its binding.
func (r *rolloutReader) objects(ctx context.Context) (*unstructured.Unstructured, *workv1alpha2.ResourceBinding, error) {
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(r.kind)
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.name}, template); err != nil {
		return nil, nil, err
	}
	binding := &workv1alpha2.ResourceBinding{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: names.BindingName(r.kind.Kind, r.name)}, binding)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("reading the binding of %s %s/%s: %w", r.kind.Kind, r.namespace, r.name, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s/%s has no binding: no policy selects it", r.kind.Kind, r.namespace, r.name)
	}
	return template, binding, nil
}

// once prints the present state.
func (r *rolloutReader) once(ctx context.Context, out io.Writer, output string) error {
	state, err := r.read(ctx)
	if err != nil {
		return err
	}
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(state)
	} else {
		err = state.print(out)
	}
	if err == nil && !state.Done {
		return exitError{code: 2}
	}
	return err
}

// rolloutPoll is how often a rollout is read.
const rolloutPoll = time.Second

// follow shows a rollout until it has finished.
func (r *rolloutReader) follow(ctx context.Context, out io.Writer, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	screen, last := newRolloutScreen(out), (*rolloutState)(nil)
	err := wait.PollUntilContextCancel(ctx, rolloutPoll, true, func(ctx context.Context) (bool, error) {
		state, err := r.read(ctx)
		if err != nil {
			return false, err
		}
		last = state
		return state.Done, screen.show(state)
	})
	if err != nil && timedOut(ctx, err) && last != nil {
		return fmt.Errorf("%s has not finished after %s: %s", last.Workload, timeout, last.waiting())
	}
	return err
}

// timedOut reports whether an error is due to the deadline of a context. Clients that would have to wait beyond it have errors of their own, also a moment
// before the context ends.
func timedOut(ctx context.Context, err error) bool {
	deadline, limited := ctx.Deadline()
	return errors.Is(err, context.DeadlineExceeded) || limited && !time.Now().Before(deadline)
}

// rolloutState is how far a rollout is.
type rolloutState struct {
	Workload  string           `json:"workload"`
	Replicas  int64            `json:"replicas"`
	Updated   int64            `json:"updated"`
	Available int64            `json:"available"`
	Paused    bool             `json:"paused,omitempty"`
	Done      bool             `json:"done"`
	Clusters  []rolloutCluster `json:"clusters"`
}

// rolloutCluster is how far one cluster is.
type rolloutCluster struct {
	Name      string `json:"name"`
	Replicas  int64  `json:"replicas"`
	Updated   int64  `json:"updated"`
	Available int64  `json:"available"`
	// May is what the cluster may do during its update.
	May   string `json:"may,omitempty"`
	State string `json:"state"`
	// Done is whether it has finished.
	Done bool `json:"done"`
}

// reportedRollout is what a cluster reports of a workload.
type reportedRollout struct {
	Replicas                   int64 `json:"replicas"`
	UpdatedReplicas            int64 `json:"updatedReplicas"`
	AvailableReplicas          int64 `json:"availableReplicas"`
	ResourceTemplateGeneration int64 `json:"resourceTemplateGeneration"`
	Generation                 int64 `json:"generation"`
	ObservedGeneration         int64 `json:"observedGeneration"`
}

func newRolloutState(template *unstructured.Unstructured, binding *workv1alpha2.ResourceBinding) (*rolloutState, error) {
	ledger, err := rollout.DecodeLedger(binding.Annotations[names.RolloutAnnotation])
	if err != nil {
		return nil, err
	}
	waits := map[string]string{}
	if text := binding.Annotations[names.RolloutWaitsAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &waits); err != nil {
			return nil, fmt.Errorf("reading the annotation %s of binding %s: %w", names.RolloutWaitsAnnotation, binding.Name, err)
		}
	}
	s := &rolloutState{Workload: fmt.Sprintf("%s %s/%s", template.GetKind(), template.GetNamespace(), template.GetName())}
	s.Paused = rollout.Paused(template)
	shares := map[string]int64{}
	for name, entry := range ledger {
		if entry.Command.Replicas > 0 {
			shares[name] = 0
		}
	}
	for _, target := range binding.Spec.Clusters {
		shares[target.Name] = int64(target.Replicas)
		s.Replicas += int64(target.Replicas)
	}
	items := map[string]*workv1alpha2.AggregatedStatusItem{}
	for i := range binding.Status.AggregatedStatus {
		items[binding.Status.AggregatedStatus[i].ClusterName] = &binding.Status.AggregatedStatus[i]
	}
	s.Done = true
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		c := rolloutCluster{Name: name, Replicas: shares[name]}
		c.describe(template.GetGeneration(), items[name], ledger[name], waits[name])
		s.Updated, s.Available, s.Done = s.Updated+c.Updated, s.Available+c.Available, s.Done && c.Done
		s.Clusters = append(s.Clusters, c)
	}
	if _, known := rollout.KindOf(template.GetAPIVersion(), template.GetKind()); known { // others may not have the field
		observed, _, _ := unstructured.NestedInt64(template.Object, "status", "observedGeneration")
		s.Done = s.Done && observed >= template.GetGeneration()
	}
	return s, nil
}

// describe adds what is known about the cluster.
func (c *rolloutCluster) describe(generation int64, item *workv1alpha2.AggregatedStatusItem, entry rollout.Entry, waits string) {
	var reported reportedRollout
	if item != nil && item.Status != nil {
		_ = json.Unmarshal(item.Status.Raw, &reported) // what cannot be read is not reported
	}
	told := reported.ResourceTemplateGeneration >= generation
	current := told && reported.ObservedGeneration >= reported.Generation
	if c.Available = reported.AvailableReplicas; current {
		c.Updated = reported.UpdatedReplicas
	}
	kept := min(int64(entry.Command.Partition), c.Replicas) // by the partition
	complete := current && c.Updated >= c.Replicas-kept && reported.Replicas == c.Replicas
	switch {
	case waits != "":
		c.State = waits
	case item != nil && !item.Applied && item.AppliedMessage != "":
		c.State = item.AppliedMessage
	case c.Replicas == 0 && entry.Command.Replicas > 0:
		c.State = "is being left"
	case !told:
		c.State = "has not begun"
	case !current:
		c.State = "begins"
	case !complete:
		c.State = "updates"
		if entry.Command.Paused {
			c.State = "paused"
		}
	case c.Available < c.Replicas:
		c.State = "waits until its pods are available"
	case c.Updated < c.Replicas:
		c.State, c.Done = fmt.Sprintf("done: the partition keeps %d old pods", c.Replicas-c.Updated), true
	default:
		c.State, c.Done = "done", true
	}
	if current && !complete && entry.Seq > 0 {
		c.May = fmt.Sprintf("+%d -%d", entry.Command.Surge, entry.Command.Unavailable)
	}
}

// waiting says in one line what is not finished.
func (s *rolloutState) waiting() string {
	var parts []string
	for i := range s.Clusters {
		if c := &s.Clusters[i]; !c.Done {
			parts = append(parts, c.Name+" "+c.State)
		}
	}
	if len(parts) == 0 {
		return "the status of the workload has not followed yet"
	}
	return strings.Join(parts, "; ")
}
