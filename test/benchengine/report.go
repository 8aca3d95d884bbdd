package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// report has all measurements.
type report struct {
	Settings map[string]int `json:"settings"`
	Sections []*section     `json:"sections"`
}

// section is a table of figures with its writes.
type section struct {
	Title   string    `json:"title"`
	Figures []*figure `json:"figures"`
	// Writes are requests to the API server of the cell, by verb and resource.
	Writes     requests `json:"writes,omitempty"`
	WritesEach string   `json:"writesEach,omitempty"` // what they are divided by
	// Doubt says why the figures are not reliable.
	Doubt string `json:"doubt,omitempty"`
}

// figure is a number with its target.
type figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit,omitempty"`
	Target string  `json:"target,omitempty"`
	Missed bool    `json:"missed,omitempty"`
}

const (
	unitMilliseconds = "ms"
	unitSeconds      = "s"
	unitMebibytes    = "MiB"
	unitKibibytes    = "KiB"
	unitMillicores   = "millicores"
)

func (s *section) add(name string, value float64, unit string) *figure {
	f := &figure{Name: name, Value: value, Unit: unit}
	s.Figures = append(s.Figures, f)
	return f
}

// atMost sets the target.
func (f *figure) atMost(limit float64) {
	f.Target = "≤ " + quantity(limit, f.Unit)
	f.Missed = f.Value > limit
}

// doubtChange marks figures as unreliable if another engine became the leader.
func (s *section) doubtChange(before, after *balance) {
	if before.leader != after.leader {
		s.Doubt = "another engine became the leader meanwhile; the machine may have been too busy"
	}
}

// print writes the section as Markdown.
func (s *section) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n| | measured | target |\n|---|---|---|\n", s.Title)
	for _, f := range s.Figures {
		target := f.Target
		if f.Missed {
			target += " (missed)"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", f.Name, quantity(f.Value, f.Unit), target)
	}
	if s.Writes != nil {
		fmt.Fprintf(w, "\nWrites %s: %s.\n", s.WritesEach, s.Writes)
	}
	if s.Doubt != "" {
		fmt.Fprintf(w, "\n**Doubtful: %s.**\n", s.Doubt)
	}
}

// quantity formats a number with three digits, large numbers with all.
func quantity(value float64, unit string) string {
	digits := 0
	switch {
	case value == float64(int64(value)):
	case value < 1:
		digits = 3
	case value < 10:
		digits = 2
	case value < 100:
		digits = 1
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s", digits, value, unit))
}

func (r *report) save(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
