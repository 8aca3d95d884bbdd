package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The token is in a file of the user alone while the browser reads it, in no argument, and nowhere afterwards.
func TestConsoleOpensPrivately(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "console.html")
	if err := os.WriteFile(stale, nil, 0o644); err != nil { //nolint:gosec // the test is that this does not stay
		t.Fatal(err)
	}
	shown, opened := "", false
	show := func(_ context.Context, path string) error {
		shown = path
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("the file has mode %v", mode)
		}
		page, err := os.ReadFile(path)
		if want := `content="0; url=https://127.0.0.1/console/#token=a&amp;b&#34;"`; !strings.Contains(string(page), want) {
			t.Errorf("the page does not lead to the address: %s", page)
		}
		return err
	}
	if err := openPrivately(t.Context(), dir, `https://127.0.0.1/console/#token=a&b"`, show, func() { opened = true }, 0); err != nil {
		t.Fatal(err)
	}
	if !opened || strings.Contains(shown, "token") {
		t.Errorf("opened is %v, and the browser is told %q", opened, shown)
	}
	refuse := errors.New("no browser")
	if err := openPrivately(t.Context(), dir, "https://127.0.0.1/", func(context.Context, string) error { return refuse }, func() { t.Error("opened was called") }, 0); !errors.Is(err, refuse) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

var (
	// shownCommand finds the commands of this program in the sources of the console.
	shownCommand = regexp.MustCompile("[>`\"]cellplane ((?:\\$?\\{[^}]*\\}|[^`<\"{}])*)[`<\"]")
	// eitherWord finds an expression that is one of two words.
	eitherWord = regexp.MustCompile(`\$\{[^}?]*\? "([^"]*)" : "([^"]*)"\}`)
	// namespaceFlag and anyWord find other expressions.
	namespaceFlag = regexp.MustCompile(`\$\{inNamespace\([^}]*\)\}`)
	anyWord       = regexp.MustCompile(`\$?\{[^}]*\}`)
)

// alternatives returns the commands that an expression of the console can be.
func alternatives(text string) []string {
	if at := eitherWord.FindStringSubmatchIndex(text); at != nil {
		var all []string
		for i := 2; i <= 4; i += 2 {
			all = append(all, alternatives(text[:at[0]]+text[at[i]:at[i+1]]+text[at[1]:])...)
		}
		return all
	}
	return []string{anyWord.ReplaceAllString(namespaceFlag.ReplaceAllString(text, " -n shop"), "x")}
}

// The commands that the console shows exist, with their flags and as many arguments.
func TestConsoleShowsCommandsThatExist(t *testing.T) {
	// Those of the planner are put together from words.
	commands := []string{"cells add x", "cells add x --weight 2", "cells drain x", "cells weight x 2", "cells failover x", "cells rejoin x"}
	for _, command := range slices.Clone(commands) {
		commands = append(commands, strings.Replace(command, "cells ", "cells plan ", 1))
	}
	put := len(commands)
	if err := filepath.WalkDir("../console/web/src", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".tsx" || entry.IsDir() {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range shownCommand.FindAllStringSubmatch(string(source), -1) {
			commands = append(commands, alternatives(found[1])...)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if found := len(commands) - put; found < 15 {
		t.Errorf("only %d commands were found", found)
	}
	for _, command := range commands {
		cmd, args, err := newRoot().Find(strings.Fields(command))
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		// Texts name some commands without what follows.
		if named := len(args) == 0; err == nil && !named {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil || !cmd.Runnable() {
			t.Errorf("cellplane %s: runnable %v, %v", command, cmd.Runnable(), err)
		}
	}
}
