package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/release"
	"github.com/cellplane/cellplane/internal/render"
)

func newAdoptRelease() *cobra.Command {
	var flags adoptFlags
	cluster, timeout := "", 2*time.Minute
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Let workloads go: clusters keep them, without the federation",
		Long: `Let the workloads of a namespace go. Templates, bindings, Works, and policies
that were made for one of them, disappear. The clusters keep what they run,
without labels and annotations of the federation. Nothing is deleted in a
cluster, also where a policy does not have preserveResourcesOnDeletion.

With --cluster the objects of one cluster go; the other clusters keep theirs,
with the replicas that they have. This is possible for what "adopt apply" has
adopted.

With -l only workloads with these labels go, and nothing that belongs to them.

The command can be interrupted and repeated. The exit code is 2 if something was
not released.`,
		Example: `  cellplane adopt release -n shop
  cellplane adopt release -n shop -l app=web --cluster member2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return releaseAdopted(cmd.Context(), cmd.OutOrStdout(), &flags, cluster, timeout)
		},
	}
	flags.addBasic(cmd)
	flags.addParallel(cmd)
	cmd.Flags().StringVar(&cluster, "cluster", "", "release in this cluster only")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the engine, for each workload")
	return cmd
}

func releaseAdopted(ctx context.Context, out io.Writer, flags *adoptFlags, cluster string, timeout time.Duration) error {
	a, err := openAdoption(ctx, flags)
	if err != nil {
		return err
	}
	if _, known := a.members[cluster]; cluster != "" && !known {
		return fmt.Errorf("--cluster: there is no cluster %q in the federation", cluster)
	}
	f := &release.Federation{Client: a.client, Templates: a.templates, Members: a.members, Interpreter: a.interpreters, Compare: a.firstChange}
	o := &outcomes{out: out}
	for _, resource := range a.releasable() {
		err := flags.inParallel(ctx, func(ctx context.Context, start func(func() error)) error {
			return a.eachPlaced(ctx, resource, func(template *unstructured.Unstructured) {
				start(func() error {
					outcome, err := releaseOne(ctx, f, resource, template, cluster, timeout)
					return o.print(adopt.KeyOf(template), outcome, err)
				})
			})
		})
		if err != nil {
			return interrupted(ctx, err, "interrupted; repeat the command to go on")
		}
	}
	if err := f.Leftovers(ctx, flags.namespace); err != nil {
		return err
	}
	return o.result()
}

// releaseOne releases a template in a cluster, or in all. It returns what was done.
func releaseOne(ctx context.Context, f *release.Federation, resource schema.GroupVersionResource, template *unstructured.Unstructured, cluster string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if cluster == "" {
		return "released", f.Everywhere(ctx, resource, template)
	}
	return "released in cluster " + cluster, f.From(ctx, resource, template, cluster)
}

// releasable returns the kinds to release, in order: workloads first, then what belongs to them.
func (a *adoption) releasable() []schema.GroupVersionResource {
	resources := slices.Concat(workloads, a.further)
	if a.flags.selector == "" {
		resources = slices.Concat(resources, attendants, dependencies)
	}
	return resources
}

// eachPlaced visits the templates of a kind in the namespace that a policy places.
func (a *adoption) eachPlaced(ctx context.Context, resource schema.GroupVersionResource, visit func(*unstructured.Unstructured)) error {
	source := a.source(ctx, "", a.templates, resource, a.flags.selector)
	for {
		template, err := source.Next()
		if err != nil || template == nil {
			return err
		}
		if release.Placed(template) {
			visit(template)
		}
	}
}

// firstChange returns the first field that a manifest would change in an object of a cluster, "" if there is none.
func (a *adoption) firstChange(ctx context.Context, _ string, live, manifest *unstructured.Unstructured) (string, error) {
	resource, err := a.resource(manifest.GroupVersionKind())
	if err != nil {
		return "", err
	}
	merger, err := a.mergers.of(ctx, resource, manifest.GroupVersionKind())
	if err != nil {
		return "", err
	}
	merged, _, err := render.Merge(ctx, a.interpreters, merger, live, manifest)
	if err != nil {
		return "", err
	}
	if changes := difference.Between(live, merged); len(changes) > 0 {
		return changes[0].Describe(live.GetKind()), nil
	}
	return "", nil
}
