package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/adopt"
)

// promotion is the flags of the promote command.
type promotion struct {
	adoptFlags
	cluster      string
	dependencies bool
	dryRun       bool
	timeout      time.Duration
}

func newPromote() *cobra.Command {
	p := promotion{timeout: 2 * time.Minute}
	cmd := &cobra.Command{
		Use:     "promote KIND NAME -C CLUSTER",
		GroupID: groupClusters,
		Short:   "Bring one object of a cluster under the federation",
		Long: `Bring one object of a cluster under the federation in place, as "adopt apply"
does for all of a namespace: nothing is created anew, no pod is restarted, and
an object that would change is refused. Other clusters are not touched.`,
		Example: `  cellplane promote deployment web -n shop -C member1 --dry-run
  cellplane promote deployment web -n shop -C member1 --dependencies`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], args[1])
		},
	}
	p.gatewayFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&p.namespace, "namespace", "n", "default", "namespace of the object")
	flags.StringVarP(&p.cluster, "cluster", "C", "", "cluster that has the object")
	flags.BoolVarP(&p.dependencies, "dependencies", "d", false, "also the ConfigMaps, Secrets and other objects that it refers to")
	flags.BoolVar(&p.dryRun, "dry-run", false, "print the manifests and create nothing")
	flags.DurationVar(&p.timeout, "timeout", p.timeout, "how long to wait for the engine, for each object")
	return cmd
}

func (p *promotion) run(ctx context.Context, out, warnings io.Writer, kind, name string) error {
	if p.cluster == "" {
		return errors.New("choose the cluster that has the object with -C")
	}
	p.clusters, p.resources = []string{p.cluster}, []string{kind}
	a, err := openAdoption(ctx, &p.adoptFlags)
	if err != nil {
		return errors.New(strings.ReplaceAll(strings.ReplaceAll(err.Error(), "--resource: ", ""), "--clusters", "--cluster"))
	}
	if err := a.readAutoscalers(ctx); err != nil {
		return err
	}
	group, err := a.only(ctx, p.cluster, a.further[0], name)
	if err != nil {
		return err
	}
	visit := p.adopting(ctx, out, a)
	if p.dryRun {
		printer := &adoptionYAML{out: out, warnings: warnings}
		if err := printer.begin(a); err != nil {
			return err
		}
		defer func() { _ = printer.end() }()
		visit = func(_ adopt.Group, item *adopt.Item) error { return printer.item(item) }
	}
	related := adopt.NewRelations(a.interpreters)
	if err := visit(group, a.plan(ctx, group, related)); err != nil || !p.dependencies {
		return err
	}
	return a.eachDependency(ctx, related, func(group adopt.Group) error { return visit(group, a.plan(ctx, group, related)) })
}

// adopting returns a function that adopts a group and prints the outcome.
func (p *promotion) adopting(ctx context.Context, out io.Writer, a *adoption) func(adopt.Group, *adopt.Item) error {
	return func(group adopt.Group, item *adopt.Item) error {
		if item.Managed {
			_, err := fmt.Fprintf(out, "%s is managed already.\n", item.Key)
			return err
		}
		if err := a.adopt(ctx, group, item, p.timeout); err != nil {
			return fmt.Errorf("%s is not promoted: %w", item.Key, err)
		}
		_, err := fmt.Fprintf(out, "%s is promoted.\n", item.Key)
		return err
	}
}

// only returns the group of one object in one cluster.
func (a *adoption) only(ctx context.Context, cluster string, resource schema.GroupVersionResource, name string) (adopt.Group, error) {
	object, err := a.members[cluster].Resource(resource).Namespace(a.flags.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return adopt.Group{}, fmt.Errorf("cluster %s has no %s %s in namespace %s", cluster, resource.Resource, name, a.flags.namespace)
	}
	if err != nil {
		return adopt.Group{}, fmt.Errorf("reading %s %s in cluster %s: %w", resource.Resource, name, cluster, err)
	}
	group := adopt.Group{Key: adopt.KeyOf(object), Objects: []adopt.Object{{Cluster: cluster, Object: object}}}
	group.Template, err = a.templates.Resource(resource).Namespace(a.flags.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		group.Template, err = nil, nil
	}
	if err != nil {
		return adopt.Group{}, fmt.Errorf("reading the template of %s: %w", group.Key, err)
	}
	return group, nil
}
