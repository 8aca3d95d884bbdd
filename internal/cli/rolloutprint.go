package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// title returns the line above the table, with a bar.
func (s *rolloutState) title() string {
	const width = 20
	done := width
	if s.Replicas > 0 {
		done = int(min(s.Updated, s.Replicas) * width / s.Replicas)
	}
	paused := ""
	if s.Paused {
		paused = ", paused"
	}
	return fmt.Sprintf("%s: %d of %d updated, %d available%s  [%s%s]", s.Workload, s.Updated, s.Replicas, s.Available, paused, strings.Repeat("#", done), strings.Repeat(".", width-done))
}

func (s *rolloutState) print(out io.Writer) error {
	if _, err := fmt.Fprintln(out, s.title()); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tREPLICAS\tUPDATED\tAVAILABLE\tMAY\tSTATE")
	for i := range s.Clusters {
		c := &s.Clusters[i]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", c.Name, c.Replicas, c.Updated, c.Available, c.May, c.State)
	}
	return w.Flush()
}

// rolloutScreen shows a rollout again and again: on a terminal in the same place, elsewhere as a line for each cluster that has changed.
type rolloutScreen struct {
	progress *progress
	lines    int // on the terminal
	shown    map[string]rolloutCluster
}

func newRolloutScreen(out io.Writer) *rolloutScreen {
	return &rolloutScreen{progress: newProgress(out), shown: map[string]rolloutCluster{}}
}

func (r *rolloutScreen) show(s *rolloutState) error {
	if !r.progress.terminal {
		return r.append(s)
	}
	var text bytes.Buffer
	if err := s.print(&text); err != nil {
		return err
	}
	if r.lines > 0 {
		fmt.Fprintf(r.progress.out, "\033[%dA\033[J", r.lines) // back to the first line, and clear
	}
	r.lines = 0
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, "\n")
		if r.progress.width > 0 && len(line) > r.progress.width-1 {
			line = line[:r.progress.width-1]
		}
		r.lines++
		if _, err := fmt.Fprintln(r.progress.out, line); err != nil {
			return err
		}
	}
	return nil
}

// append prints what has changed.
func (r *rolloutScreen) append(s *rolloutState) error {
	for i := range s.Clusters {
		c := s.Clusters[i]
		if before, known := r.shown[c.Name]; known && before == c {
			continue
		}
		r.shown[c.Name] = c
		if _, err := fmt.Fprintf(r.progress.out, "%s: %d of %d updated, %d available: %s\n", c.Name, c.Updated, c.Replicas, c.Available, c.State); err != nil {
			return err
		}
	}
	if s.Done {
		_, err := fmt.Fprintln(r.progress.out, s.title())
		return err
	}
	return nil
}
