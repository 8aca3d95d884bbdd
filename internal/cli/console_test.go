package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
