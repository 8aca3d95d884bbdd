package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/cmd/top"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

func newTop(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "top",
		GroupID: groupClusters,
		Short:   "Show what pods or nodes of clusters use",
		Long: `Show how much CPU and memory the pods or nodes of clusters use. The clusters
need a metrics API.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(
		newTopOf(streams, "pod", func(f cmdutil.Factory, s genericiooptions.IOStreams) *cobra.Command {
			return top.NewCmdTopPod(f, nil, s)
		}),
		newTopOf(streams, "node", func(f cmdutil.Factory, s genericiooptions.IOStreams) *cobra.Command {
			return top.NewCmdTopNode(f, nil, s)
		}),
	)
	return cmd
}

// newTopOf makes a command that runs kubectl's for one cluster after another, and merges what it prints.
func newTopOf(streams genericiooptions.IOStreams, kind string, newCmd func(cmdutil.Factory, genericiooptions.IOStreams) *cobra.Command) *cobra.Command {
	v := &view{streams: streams}
	printed := &bytes.Buffer{}
	cmd := newCmd(v.factory(), genericiooptions.IOStreams{In: streams.In, Out: printed, ErrOut: io.Discard})
	run := cmd.Run
	cmd.Use = kind + " [NAME]"
	cmd.Short = "Show what " + kind + "s use"
	cmd.Long = cmd.Short + ". All flags of kubectl top " + kind + " can be used."
	cmd.Example = "  cellplane top " + kind + " -C member1,member2 --sort-by cpu"
	cmd.Run, cmd.ValidArgsFunction = nil, nil
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := v.connect(cmd.Context()); err != nil {
			return err
		}
		return v.top(cmd, len(args) > 0, func() (string, error) {
			printed.Reset()
			err := v.catch(func() { run(cmd, args) })
			return printed.String(), err
		})
	}
	v.addFlags(cmd)
	cmd.Flags().StringSliceVarP(&v.clusters, "clusters", "C", nil, "clusters to look at (default: all)")
	return cmd
}

// top shows the usage in all chosen clusters. An object that is named need not be in all of them.
func (v *view) top(cmd *cobra.Command, named bool, measure func() (string, error)) error {
	flags := cmd.Flags()
	if sum, _ := flags.GetBool("sum"); sum && len(v.chosen()) > 1 {
		return errors.New("--sum adds up one cluster; choose it with -C")
	}
	noHeaders, err := flags.GetBool("no-headers")
	if err != nil {
		return err
	}
	if err := flags.Set("no-headers", "false"); err != nil { // they say which column is which
		return err
	}
	var all usage
	var problems []string
	for _, cluster := range v.chosen() {
		if err := v.openMember(cluster); err != nil {
			return err
		}
		text, err := measure()
		if err != nil {
			problems = append(problems, fmt.Sprintf("cluster %s answers: %v", cluster, err))
			continue
		}
		all.add(cluster, text)
	}
	if named && len(all.rows) > 0 {
		problems = slices.DeleteFunc(problems, func(problem string) bool { return strings.Contains(problem, "(NotFound)") })
	}
	sortBy, err := flags.GetString("sort-by")
	if err != nil {
		return err
	}
	all.sort(sortBy)
	if err := all.print(v.streams.Out, noHeaders); err != nil {
		return err
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	if len(all.rows) == 0 {
		fmt.Fprintln(v.streams.ErrOut, "No resources found")
	}
	return nil
}

// usage is the tables of kubectl top of several clusters, with a column for the cluster.
type usage struct {
	header []string
	rows   [][]string
}

// add adds the table of a cluster. No cell has a space in it.
func (u *usage) add(cluster, text string) {
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		cells := strings.Fields(line)
		if len(cells) == 0 {
			return
		}
		if i == 0 {
			u.header = slices.Insert(cells, u.clusterColumn(cells), "CLUSTER")
			continue
		}
		u.rows = append(u.rows, slices.Insert(cells, min(u.clusterColumn(u.header), len(cells)), cluster))
	}
}

// clusterColumn is after the names and before the first number.
func (u *usage) clusterColumn(header []string) int {
	return max(0, slices.IndexFunc(header, func(name string) bool { return name == "CLUSTER" || strings.HasPrefix(name, "CPU") }))
}

// sort sorts by cpu or memory over all clusters, the largest first.
func (u *usage) sort(by string) {
	column := slices.IndexFunc(u.header, func(name string) bool { return by != "" && strings.HasPrefix(strings.ToLower(name), by+"(") })
	if column < 0 {
		return
	}
	value := func(row []string) resource.Quantity {
		if column >= len(row) {
			return resource.Quantity{}
		}
		quantity, err := resource.ParseQuantity(row[column])
		if err != nil {
			return resource.Quantity{}
		}
		return quantity
	}
	slices.SortStableFunc(u.rows, func(a, b []string) int {
		other := value(b)
		return other.Cmp(value(a))
	})
}

func (u *usage) print(out io.Writer, noHeaders bool) error {
	table := printers.GetNewTabWriter(out)
	if !noHeaders && len(u.rows) > 0 {
		fmt.Fprintln(table, strings.Join(u.header, "\t"))
	}
	for _, row := range u.rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}
