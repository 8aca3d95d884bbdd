package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/entry"
)

func newEntry() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "entry",
		GroupID: groupClusters,
		Short:   "Take objects of a cluster out of the federation's hands for a time",
		Long: `Take objects of a cluster out of the federation's hands for a time. While the
entry of an object is open, the federation neither writes to it nor deletes it:
what people change there stays. Its status and its replicas are still reported.

The annotation cellplane.io/entry of the object in its cluster opens it. If the
federation is down, set it there with kubectl.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newEntryOpen(), newEntryClose(), newEntryList())
	return cmd
}

// entryFlags are the flags of the commands for one object.
type entryFlags struct {
	gatewayFlags
	namespace, cluster string
}

func (f *entryFlags) addObject(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the object; cluster-scoped objects have none")
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "cluster of the object (required)")
	if err := cmd.MarkFlagRequired("cluster"); err != nil {
		panic(err) // the flag was added a line above
	}
}

// memberObject is an object of a cluster.
type memberObject struct {
	config  *rest.Config // of the federation
	cluster string
	objects dynamic.ResourceInterface
	live    *unstructured.Unstructured
}

// open reads the object that an argument like deploy/web names.
func (f *entryFlags) open(ctx context.Context, argument string) (*memberObject, error) {
	kind, name, err := splitWorkload(argument)
	if err != nil {
		return nil, err
	}
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	o := &memberObject{config: config, cluster: f.cluster}
	member := memberConfig(config, f.cluster)
	resource, namespaced, err := scopedResourceOf(member, kind)
	switch {
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("cluster %s does not have the kind %q", f.cluster, kind)
	case err != nil:
		return nil, fmt.Errorf("finding the kind %q in cluster %s: %w", kind, f.cluster, err)
	}
	all, err := dynamic.NewForConfig(member)
	if err != nil {
		return nil, fmt.Errorf("connecting to cluster %s: %w", f.cluster, err)
	}
	o.objects = all.Resource(resource)
	if namespaced {
		o.objects = all.Resource(resource).Namespace(f.namespace)
	}
	return o, o.read(ctx, name)
}

func (o *memberObject) read(ctx context.Context, name string) (err error) {
	if o.live, err = o.objects.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("reading it in cluster %s: %w", o.cluster, err)
	}
	return nil
}

// String names the object, for messages.
func (o *memberObject) String() string {
	return fmt.Sprintf("%s in cluster %s", adopt.KeyOf(o.live), o.cluster)
}

// annotate changes annotations of the object as it was read. A conflict means that somebody has changed it since.
func (o *memberObject) annotate(ctx context.Context, annotations map[string]any) error {
	maps.Copy(annotations, entry.Seen(o.live))
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.live.GetResourceVersion(), "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = o.objects.Patch(ctx, o.live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: entry.FieldManager})
	return err
}

// annotateLatest changes annotations whatever else has changed since.
func (o *memberObject) annotateLatest(ctx context.Context, annotations map[string]any) error {
	for {
		err := o.annotate(ctx, annotations)
		if !apierrors.IsConflict(err) {
			return err
		}
		if err := o.read(ctx, o.live.GetName()); err != nil {
			return err
		}
	}
}

func newEntryOpen() *cobra.Command {
	var flags entryFlags
	lasting, reason := time.Hour, ""
	cmd := &cobra.Command{
		Use:   "open KIND/NAME",
		Short: "Take an object of a cluster out of the federation's hands",
		Long: `Take an object of a cluster out of the federation's hands. It stays open until
it is closed. When its time is over, the federation says so in conditions and
events. To change the time or the reason of an open entry, open it again.`,
		Example: `  cellplane entry open deploy/web -n shop --cluster member1 --for 2h --reason "ticket 4711"
  cellplane entry open clusterrole/operators --cluster member1 --for 2h`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return openEntry(cmd.Context(), cmd.OutOrStdout(), &flags, args[0], lasting, reason)
		},
	}
	flags.addObject(cmd)
	cmd.Flags().DurationVar(&lasting, "for", lasting, "how long it should stay open; 0 means without end")
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}

func openEntry(ctx context.Context, out io.Writer, flags *entryFlags, argument string, lasting time.Duration, reason string) error {
	if lasting < 0 {
		return fmt.Errorf("--for must not be negative, but is %s", lasting)
	}
	o, err := flags.open(ctx, argument)
	if err != nil {
		return err
	}
	if o.live.GetLabels()[names.ManagedLabel] != names.ManagedValue {
		return fmt.Errorf("the federation does not manage %s", o)
	}
	e := entry.Entry{Reason: reason, By: userOf(ctx, o.config)}
	if lasting > 0 {
		e.Until = time.Now().Add(lasting).Truncate(time.Second)
	}
	if err := o.annotateLatest(ctx, e.Annotations()); err != nil {
		return fmt.Errorf("opening %s: %w", o, err)
	}
	_, err = fmt.Fprintf(out, "%s is %s.\nThe federation does not write to it until `cellplane entry close`.\n", o, e.Describe(time.Now()))
	return err
}

// userOf returns the name of the user, as the federation knows it; empty if it does not tell.
func userOf(ctx context.Context, config *rest.Config) string {
	federation, err := kubernetes.NewForConfig(config)
	if err != nil {
		return ""
	}
	review, err := federation.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

func newEntryClose() *cobra.Command {
	var flags entryFlags
	keep, discard, into, timeout := false, false, "", 2*time.Minute
	cmd := &cobra.Command{
		Use:   "close KIND/NAME (--keep | --discard)",
		Short: "Give an object of a cluster back to the federation",
		Long: `Give an object of a cluster back to the federation.

With --discard it becomes what the federation wants. With --keep the federation
wants what it is now: an OverridePolicy for this cluster has every field that
the federation would change back, or a ClusterOverridePolicy if the object is
cluster-scoped. With --into template the template gets these fields, and so do
all clusters. The entry is closed only after the engine has rendered it without
a difference.

The template cannot get fields that an override sets for the cluster, and not
the replicas of one of several clusters among which they are divided. An
override cannot change what a Role or a ClusterRole grants.`,
		Example: `  cellplane entry close deploy/web -n shop --cluster member1 --keep
  cellplane entry close deploy/web -n shop --cluster member1 --keep --into template
  cellplane entry close deploy/web -n shop --cluster member1 --discard`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keep == discard {
				return errors.New("say what becomes of the changes: --keep or --discard")
			}
			switch {
			case into == "" && keep:
				into = intoOverride
			case into != "" && !keep:
				return errors.New("--into says where changes are kept; give it with --keep")
			case keep && into != intoOverride && into != intoTemplate:
				return fmt.Errorf("--into must be %s or %s, not %q", intoOverride, intoTemplate, into)
			}
			return closeEntry(cmd.Context(), cmd.OutOrStdout(), &flags, args[0], into, timeout)
		},
	}
	flags.addObject(cmd)
	cmd.Flags().BoolVar(&keep, "keep", false, "lift the changes into the federation")
	cmd.Flags().StringVar(&into, "into", "", "where to, with --keep: override, for the cluster, or template, for all clusters (default: override)")
	cmd.Flags().BoolVar(&discard, "discard", false, "let the federation set the changes back")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the engine, with --keep")
	return cmd
}

// closeEntry closes an entry. KeepInto says where its changes are kept; they are discarded if it is empty.
func closeEntry(ctx context.Context, out io.Writer, flags *entryFlags, argument, keepInto string, timeout time.Duration) error {
	o, err := flags.open(ctx, argument)
	if err != nil {
		return err
	}
	if _, open := entry.Of(o.live.GetAnnotations()); !open {
		return fmt.Errorf("%s is not open", o)
	}
	if keepInto != "" {
		if err := keepEntry(ctx, out, flags, o, keepInto, timeout); err != nil {
			return err
		}
	} else if err := o.annotateLatest(ctx, entry.Closed()); err != nil {
		return fmt.Errorf("closing %s: %w", o, err)
	}
	_, err = fmt.Fprintf(out, "%s is in the federation's hands again.\n", o)
	return err
}

func newEntryList() *cobra.Command {
	var flags entryFlags
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List open entries",
		Long: `List the objects of clusters that are out of the federation's hands, as far as
its engines know. Without a namespace cluster-scoped objects are listed, too.`,
		Example: `  cellplane entry list -n shop`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listEntries(cmd.Context(), cmd.OutOrStdout(), &flags)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVarP(&flags.namespace, "namespace", "n", "", "namespace of the objects (default: all, and what is cluster-scoped)")
	cmd.Flags().StringVar(&flags.cluster, "cluster", "", "cluster of the objects (default: all)")
	return cmd
}

func listEntries(ctx context.Context, out io.Writer, flags *entryFlags) error {
	config, err := flags.config()
	if err != nil {
		return err
	}
	federation, err := newClient(config)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tOBJECT\tUNTIL\tBY\tREASON")
	unread := map[string]error{} // by cluster: the entries of the others are listed nevertheless
	err = eachOpenBinding(ctx, federation, flags.namespace, func(binding *workv1alpha2.ResourceBinding) error {
		return listEntriesOf(ctx, table, config, federation.RESTMapper(), binding, flags.cluster, unread)
	})
	errs := []error{table.Flush(), err} // what was read before is listed nevertheless
	for _, cluster := range slices.Sorted(maps.Keys(unread)) {
		errs = append(errs, fmt.Errorf("the entries in cluster %s are not listed: %w", cluster, unread[cluster]))
	}
	return errors.Join(errs...)
}

// eachOpenBinding visits the bindings of which copies are open: those of a namespace, or all, with those of cluster-scoped objects.
func eachOpenBinding(ctx context.Context, federation client.Client, namespace string, visit func(*workv1alpha2.ResourceBinding) error) error {
	visitOpen := func(binding *workv1alpha2.ResourceBinding) error {
		if !meta.IsStatusConditionTrue(binding.Status.Conditions, names.EntryOpen) {
			return nil
		}
		return visit(binding)
	}
	var bindings workv1alpha2.ResourceBindingList
	if err := eachPage(ctx, federation, namespace, &bindings, func() error {
		for i := range bindings.Items {
			if err := visitOpen(&bindings.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}); err != nil || namespace != "" {
		return err
	}
	var clusterWide workv1alpha2.ClusterResourceBindingList
	return eachPage(ctx, federation, "", &clusterWide, func() error {
		for i := range clusterWide.Items {
			if err := visitOpen((*workv1alpha2.ResourceBinding)(&clusterWide.Items[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachPage visits a list page by page.
func eachPage(ctx context.Context, federation client.Client, namespace string, list client.ObjectList, visit func() error) error {
	for {
		if err := federation.List(ctx, list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(list.GetContinue())); err != nil {
			return fmt.Errorf("listing the bindings: %w", err)
		}
		if err := visit(); err != nil || list.GetContinue() == "" {
			return err
		}
	}
}

// listEntriesOf reads the objects of a binding of which some are open. Clusters that cannot be read are noted, and not asked again.
func listEntriesOf(ctx context.Context, out io.Writer, config *rest.Config, mapper meta.RESTMapper, binding *workv1alpha2.ResourceBinding, only string, unread map[string]error) error {
	resource := binding.Spec.Resource
	key := adopt.Key{GroupVersionKind: schema.FromAPIVersionAndKind(resource.APIVersion, resource.Kind), Namespace: resource.Namespace, Name: resource.Name}
	mapping, err := mapper.RESTMapping(key.GroupKind(), key.Version)
	if err != nil {
		return fmt.Errorf("finding the kind %s in the federation: %w", key.Kind, err)
	}
	for _, item := range binding.Status.AggregatedStatus {
		if only != "" && item.ClusterName != only || unread[item.ClusterName] != nil {
			continue
		}
		member, err := dynamic.NewForConfig(memberConfig(config, item.ClusterName))
		if err != nil {
			return fmt.Errorf("connecting to cluster %s: %w", item.ClusterName, err)
		}
		live, err := member.Resource(mapping.Resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			unread[item.ClusterName] = fmt.Errorf("reading %s: %w", key, err)
			continue
		}
		e, open := entry.Of(live.GetAnnotations())
		if !open {
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", item.ClusterName, key, describeUntil(e), orDash(e.By), orDash(e.Reason))
	}
	return nil
}

func describeUntil(e entry.Entry) string {
	switch {
	case e.Until.IsZero():
		return "-"
	case e.Overdue(time.Now()):
		return e.Until.Format(time.RFC3339) + " (overdue)"
	default:
		return e.Until.Format(time.RFC3339)
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
