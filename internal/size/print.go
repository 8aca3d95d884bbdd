package size

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// Print writes a plan as a table, JSON or YAML. JSON and YAML always have the reasons.
func (p *Plan) Print(w io.Writer, format string, explain bool) error {
	switch format {
	case "table":
		return p.printTable(w, explain)
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(p)
	case "yaml":
		data, err := yaml.Marshal(p)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	return fmt.Errorf("--output must be table, json or yaml, not %q", format)
}

func (p *Plan) printTable(w io.Writer, explain bool) error {
	fmt.Fprintf(w, "%d cells\n", p.Cells)
	if explain {
		fmt.Fprintf(w, "  %s\n", p.CellsReason)
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHERE\tPART\tREPLICAS\tCORES\tMEMORY\tSTORAGE")
	for _, part := range p.Parts {
		storage := "-"
		if part.StorageGiB > 0 {
			storage = fmt.Sprintf("%d GiB", part.StorageGiB)
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%g\t%g GiB\t%s\n", part.Where, part.Name, part.Replicas, part.Cores, float64(part.MemoryMiB)/1024, storage)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if explain {
		for _, part := range p.Parts {
			fmt.Fprintf(w, "\n%s, %s\n", part.Name, part.Where)
			for _, reason := range part.Reasons {
				fmt.Fprintf(w, "  %s\n", reason)
			}
		}
	}
	fmt.Fprintf(w, "\nCores, memory and storage are for each replica. In all: %d processes, %g cores, %g GiB of memory, %d GiB of storage.\n",
		p.Total.Processes, p.Total.Cores, p.Total.MemoryGiB, p.Total.StorageGiB)
	for _, note := range p.Notes {
		fmt.Fprintln(w, note)
	}
	return nil
}
