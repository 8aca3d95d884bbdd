package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/slots"
)

const groupCells = "cells"

func newCells() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cells",
		GroupID: groupCells,
		Short:   "Add, drain, weight and fail over cells",
		Long: `Manage the cells of the federation. Each change is an edit of the CellTopology
in the hub, which kubectl and GitOps can make as well. The commands show the
progress until the change is complete. Interrupting a command does not stop the
change; "cellplane cells watch" shows it again.`,
		Example: `  cellplane cells list
  cellplane cells plan add cell-c   # what would move
  cellplane cells add cell-c
  cellplane cells drain cell-c`,
	}
	cmd.AddCommand(newCellsList(), newCellsAdd(), newCellsDrain(), newCellsWeight(), newCellsFailover(), newCellsRejoin(),
		newCellsAbort(), newCellsWatch(), newCellsPlan(), newCellsVerify(), newCellsUnseal())
	return cmd
}

func newCellsList() *cobra.Command {
	var hub hubFlags
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the cells with their state, share, objects, backup and health",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := hub.client()
			if err != nil {
				return err
			}
			topology, err := readTopology(cmd.Context(), api)
			if err != nil {
				return err
			}
			var known v1alpha1.CellList
			if err := api.List(cmd.Context(), &known); err != nil {
				return fmt.Errorf("listing cells: %w", err)
			}
			rows, err := describeCells(topology, known.Items, time.Now())
			if err != nil {
				return err
			}
			return printCells(cmd.OutOrStdout(), output, topology, rows)
		},
	}
	hub.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json (default: a table)")
	return cmd
}

func readTopology(ctx context.Context, api client.Client) (*v1alpha1.CellTopology, error) {
	topology := &v1alpha1.CellTopology{}
	err := api.Get(ctx, types.NamespacedName{Name: v1alpha1.CellTopologyName}, topology)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the hub has no CellTopology; is this the kubeconfig of a hub?")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the topology: %w", err)
	}
	return topology, nil
}

// cellRow is a row of the list.
type cellRow struct {
	Name      string  `json:"name"`
	State     string  `json:"state"`
	Weight    string  `json:"weight"`
	Slots     int     `json:"slots"`
	Share     float64 `json:"share"`
	Templates *int64  `json:"templates,omitempty"`
	BackupLag string  `json:"backupLag,omitempty"`
	Health    string  `json:"health"`
	Message   string  `json:"message,omitempty"`
}

// stateSpare is the state of a cell that is not in the topology.
const stateSpare = "-"

func describeCells(topology *v1alpha1.CellTopology, known []v1alpha1.Cell, now time.Time) ([]cellRow, error) {
	compiled, err := cells.Compile(topology.Generation, &topology.Spec)
	if err != nil {
		return nil, err
	}
	byName := map[string]*v1alpha1.Cell{}
	for i := range known {
		byName[known[i].Name] = &known[i]
	}
	var rows []cellRow
	for i, holding := range compiled.Balance() {
		cell := compiled.Cell(slots.Index(i))
		row := cellRow{Name: cell.Name, State: cell.State.String(), Weight: fmt.Sprint(cell.Weight), Slots: holding.Before, Share: float64(holding.Before) / slots.Count}
		if cell.TargetWeight != 0 {
			row.Weight = fmt.Sprintf("%d>%d", cell.Weight, cell.TargetWeight)
		}
		row.describe(byName[cell.Name], now)
		delete(byName, cell.Name)
		rows = append(rows, row)
	}
	for name, cell := range byName {
		row := cellRow{Name: name, State: stateSpare, Weight: stateSpare}
		row.describe(cell, now)
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b cellRow) int { return strings.Compare(a.Name, b.Name) })
	return rows, nil
}

// provedOften is the age of a proof that only a hub manager that does not run explains: it writes a newer one three times
// as often.
const provedOften = 30 * time.Second

// describe adds the status of the Cell.
func (r *cellRow) describe(cell *v1alpha1.Cell, now time.Time) {
	if cell == nil {
		r.Health, r.Message = "unknown", "there is no such Cell"
		return
	}
	if cell.Status.Objects != nil {
		r.Templates = &cell.Status.Objects.Templates
	}
	switch backup := cell.Status.Backup; {
	case backup == nil || backup.UpToDateAt == nil:
	case backup.PendingKeys == 0 && meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellBackedUp) && now.Sub(backup.UpToDateAt.Time).Abs() < provedOften:
		r.BackupLag = "none"
	case meta.IsStatusConditionPresentAndEqual(cell.Status.Conditions, names.CellBackedUp, metav1.ConditionUnknown):
		// The backup may have more; this much is proved.
		r.BackupLag = "unknown, " + max(now.Sub(backup.UpToDateAt.Time), 0).Round(time.Second).String() + " since the last proof"
	case now.Sub(backup.UpToDateAt.Time) <= -provedOften:
		r.BackupLag = "unknown, the clocks of this machine and of the hub manager differ"
	default:
		r.BackupLag = max(now.Sub(backup.UpToDateAt.Time), 0).Round(100 * time.Millisecond).String()
	}
	ready := meta.FindStatusCondition(cell.Status.Conditions, names.CellReady)
	switch {
	case ready == nil:
		r.Health = "unknown"
	case ready.Status == metav1.ConditionTrue:
		r.Health = "ready"
	default:
		r.Health, r.Message = "not ready", ready.Message
	}
}

func printCells(out io.Writer, format string, topology *v1alpha1.CellTopology, rows []cellRow) error {
	switch format {
	case "":
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(map[string]any{"epoch": topology.Generation, "phase": topology.Status.Phase, "cells": rows})
	default:
		return fmt.Errorf("there is no output format %q; the only one is json", format)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CELL\tSTATE\tWEIGHT\tSLOTS\tSHARE\tTEMPLATES\tBACKUP LAG\tHEALTH\tMESSAGE")
	for _, row := range rows {
		templates := stateSpare
		if row.Templates != nil {
			templates = fmt.Sprint(*row.Templates)
		}
		lag := row.BackupLag
		if lag == "" {
			lag = stateSpare
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.1f %%\t%s\t%s\t%s\t%s\n", row.Name, row.State, row.Weight, row.Slots, 100*row.Share, templates, lag, row.Health, row.Message)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if running := cells.Running(&topology.Spec); running != "" {
		fmt.Fprintf(out, "\nA change is in progress: %s. Watch it with `cellplane cells watch`.\n", running)
	}
	return nil
}

func newCellsPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a change would move, without changing anything",
	}
	var weight int32
	add := planCommand("add CELL", "Show what a new cell would get", 1, func(args []string) (cells.Edit, error) { return cells.Add(args[0], weight), nil })
	add.Flags().Int32Var(&weight, "weight", 1, "weight of the new cell")
	cmd.AddCommand(add,
		planCommand("drain CELL", "Show which cells would get the share of a drained cell", 1, func(args []string) (cells.Edit, error) { return cells.Drain(args[0]), nil }),
		planCommand("failover CELL", "Show which cells would take over the share of a failed cell", 1, func(args []string) (cells.Edit, error) { return cells.Fail(args[0]), nil }),
		planCommand("rejoin CELL", "Show what a failed cell would get when it rejoins", 1, func(args []string) (cells.Edit, error) { return cells.Rejoin(args[0]), nil }),
		planCommand("weight CELL WEIGHT", "Show what a new weight would move", 2, func(args []string) (cells.Edit, error) {
			weight, err := parseWeight(args[1])
			return cells.Weight(args[0], weight), err
		}))
	return cmd
}

func planCommand(use, short string, args int, edit func([]string) (cells.Edit, error)) *cobra.Command {
	var hub hubFlags
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := edit(args)
			if err != nil {
				return err
			}
			api, err := hub.client()
			if err != nil {
				return err
			}
			topology, err := readTopology(cmd.Context(), api)
			if err != nil {
				return err
			}
			plan, err := cells.Preview(topology.Spec, wanted)
			if err != nil {
				return err
			}
			return printPlan(cmd.OutOrStdout(), plan)
		},
	}
	hub.add(cmd)
	return cmd
}

func printPlan(out io.Writer, plan cells.Plan) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CELL\tBEFORE\tAFTER\tBY WEIGHT")
	for _, share := range plan.Shares {
		fmt.Fprintf(w, "%s\t%.1f %%\t%.1f %%\t%.1f %%\n", share.Cell, 100*share.Before, 100*share.After, 100*share.Ideal)
	}
	fmt.Fprintln(w, "\t\t\t")
	fmt.Fprintln(w, "FROM\tTO\tSLOTS\tSHARE")
	for _, flow := range plan.Flows {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.1f %%\n", flow.From, flow.To, len(flow.Slots), 100*flow.Share())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%.1f %% of all objects would move. Nothing has been changed.\n", 100*plan.Moved())
	if cell := plan.Joins; cell != nil {
		fmt.Fprintf(out, "To do it by hand, add this to the cells of the CellTopology: {name: %s, weight: %d, seed: %d, state: %s}\n", cell.Name, cell.Weight, cell.Seed, cell.State)
	}
	return nil
}
