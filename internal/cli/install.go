package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/install"
)

// installFlags select an installation.
type installFlags struct {
	release             install.Release
	kubeconfig, context string
}

func (f *installFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.release.Name, "name", "cellplane", "name of the installation, which begins the names of all objects")
	flags.StringVarP(&f.release.Namespace, "namespace", "n", "cellplane-system", "namespace; it is created if it does not exist")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: that of kubectl)")
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
}

func (f *installFlags) cluster() (*install.Cluster, error) {
	config, err := loadKubeconfig(f.kubeconfig, f.context)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return install.Connect(config)
}

// installation are the flags of the install command.
type installation struct {
	installFlags
	files   []string
	set     []string
	dryRun  bool
	timeout time.Duration
}

func newInstall() *cobra.Command {
	o := installation{timeout: 15 * time.Minute}
	cmd := &cobra.Command{
		Use:     "install",
		GroupID: groupParts,
		Short:   "Install a federation on a cluster, or upgrade it",
		Long: `Install the control plane of a federation on a cluster, or change an
installation, and wait until it is ready. The chart deploy/charts/cellplane is
part of this program: Helm installs the same. Repeat the values when you change
an installation.`,
		Example: `  cellplane install --set images.prefix=registry.example.com/cellplane
  cellplane install -f deploy/charts/examples/one-node.yaml
  cellplane install -f values.yaml --dry-run | kubectl diff -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.add(cmd)
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "values", "f", nil, "file with values of the chart; can be repeated, the last one wins")
	flags.StringArrayVar(&o.set, "set", nil, "values as path=value,…; can be repeated, wins over files")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the objects; connect to no cluster")
	flags.DurationVar(&o.timeout, "timeout", o.timeout, "how long to wait until everything is ready")
	return cmd
}

func (o *installation) run(ctx context.Context, out, progress io.Writer) error {
	var err error
	if o.release.Values, err = o.values(); err != nil {
		return err
	}
	if o.dryRun {
		return printManifests(out, o.release)
	}
	cluster, err := o.cluster()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	manifests, err := cluster.Install(ctx, o.release, func(reason string) { fmt.Fprintln(progress, reason) })
	if err != nil {
		return interrupted(ctx, err, err.Error()+"; repeat the command to continue")
	}
	fmt.Fprintf(out, "Cellplane is ready.\n\n%s\n", manifests.Notes)
	return nil
}

// values merges files and settings.
func (o *installation) values() (map[string]any, error) {
	all := map[string]any{}
	for _, file := range o.files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading values: %w", err)
		}
		values := map[string]any{}
		if err := yaml.UnmarshalStrict(data, &values); err != nil {
			return nil, fmt.Errorf("reading values: %s: %w", file, err)
		}
		all = chartutil.CoalesceTables(values, all)
	}
	for _, setting := range o.set {
		if err := strvals.ParseInto(setting, all); err != nil {
			return nil, fmt.Errorf("--set %s: %w", setting, err)
		}
	}
	return all, nil
}

func printManifests(out io.Writer, release install.Release) error {
	manifests, err := install.Render(release)
	if err != nil {
		return err
	}
	for _, object := range manifests.Objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "---\n%s", data)
	}
	return nil
}

func newUninstall() *cobra.Command {
	var o installFlags
	var purge bool
	cmd := &cobra.Command{
		Use:     "uninstall",
		GroupID: groupParts,
		Short:   "Remove an installation from a cluster",
		Long: `Remove what "cellplane install" has applied. Volumes and Secrets stay, with all
data and keys: install again with the same name to continue. Member clusters
are not changed.`,
		Example: `  cellplane uninstall
  cellplane uninstall --purge   # also all data and keys`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := o.cluster()
			if err != nil {
				return err
			}
			if err := cluster.Uninstall(cmd.Context(), o.release, purge); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is removed from namespace %s.\n", o.release.Name, o.release.Namespace)
			return nil
		},
	}
	o.add(cmd)
	cmd.Flags().Lookup("namespace").Usage = "namespace of the installation"
	cmd.Flags().BoolVar(&purge, "purge", false, "also delete volumes and Secrets: all data and keys")
	return cmd
}
