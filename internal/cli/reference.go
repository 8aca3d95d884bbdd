package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go run ./docgen ../../docs/cli ../../docs/metrics.md

// WriteReference writes a Markdown page for each command, and an index, into a directory. Pages of commands that no
// longer exist are deleted.
func WriteReference(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	for _, page := range old {
		if err := os.Remove(page); err != nil {
			return err
		}
	}
	for name, text := range referencePages(newRoot()) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// referencePages returns the content of all pages by their file names.
func referencePages(root *cobra.Command) map[string][]byte {
	pages := map[string][]byte{"README.md": referenceIndex(root)}
	for _, cmd := range documented(root) {
		var page bytes.Buffer
		writeCommand(&page, cmd, 1)
		fmt.Fprintf(&page, "\nSee also the [other commands](README.md) and the [flags of all commands](README.md#flags-of-all-commands).\n")
		pages[cmd.Name()+".md"] = page.Bytes()
	}
	return pages
}

func referenceIndex(root *cobra.Command) []byte {
	var page bytes.Buffer
	fmt.Fprintf(&page, "# Command line reference\n\nGenerated from the help texts by `make generate`; do not edit.\n")
	groups := append(root.Groups(), &cobra.Group{Title: "Other commands:"})
	for _, group := range groups {
		fmt.Fprintf(&page, "\n## %s\n\n| command | |\n|---|---|\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range documented(root) {
			if cmd.GroupID == group.ID {
				fmt.Fprintf(&page, "| [%s](%s.md) | %s |\n", cmd.CommandPath(), cmd.Name(), cell(cmd.Short))
			}
		}
	}
	fmt.Fprintf(&page, "\n## Flags of all commands\n\n")
	writeFlags(&page, root.PersistentFlags())
	return page.Bytes()
}

// documented returns the visible commands below a command.
func documented(parent *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, cmd := range parent.Commands() { // sorted by name
		if cmd.IsAvailableCommand() && cmd.Name() != "help" {
			all = append(all, cmd)
		}
	}
	return all
}

// writeCommand writes a command and, below it, its subcommands.
func writeCommand(page *bytes.Buffer, cmd *cobra.Command, level int) {
	cmd.InitDefaultHelpFlag()
	fmt.Fprintf(page, "%s %s\n\n", strings.Repeat("#", level), cmd.CommandPath())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(page, "%s\n", strings.TrimSpace(text))
	if cmd.Runnable() {
		fmt.Fprintf(page, "\n```console\n$ %s\n```\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(page, "\nExamples:\n\n```console\n%s\n```\n", strings.TrimRight(cmd.Example, "\n"))
	}
	if cmd.Runnable() && cmd.LocalFlags().HasAvailableFlags() && !cmd.DisableFlagParsing {
		page.WriteByte('\n')
		writeFlags(page, cmd.LocalFlags())
	}
	for _, sub := range documented(cmd) {
		page.WriteByte('\n')
		writeCommand(page, sub, min(level+1, 4))
	}
}

// writeFlags writes a table of the visible flags.
func writeFlags(page *bytes.Buffer, flags *pflag.FlagSet) {
	fmt.Fprint(page, "| flag | default | |\n|---|---|---|\n")
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Deprecated != "" || flag.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(flag)
		name := "--" + flag.Name
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand + ", " + name
		}
		if kind != "" {
			name += " " + kind
		}
		fmt.Fprintf(page, "| `%s` | %s | %s |\n", name, defaultOf(flag), cell(usage))
	})
}

// defaultOf returns the default of a flag, or nothing if it is the zero value.
func defaultOf(flag *pflag.Flag) string {
	switch flag.DefValue {
	case "", "0", "0s", "false", "[]":
		return ""
	}
	return "`" + cell(flag.DefValue) + "`"
}

// cell makes a text fit into a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(strings.TrimSpace(text))
}
