package keep

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestValue(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first := NewValue[map[string]string](dir, "value.json")
	if err := first.Save(map[string]string{"a": "1"}); err != nil {
		t.Fatal(err)
	}
	if err := first.Save(map[string]string{"a": "2"}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "value.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v: %v", info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v: %v", left, err)
	}
	second := NewValue[map[string]string](dir, "value.json")
	if second.Kept() != nil {
		t.Error("the kept value is used before the hub counts as unreachable")
	}
	second.started = time.Now().Add(-HubTimeout)
	if kept := second.Kept(); kept == nil || (*kept)["a"] != "2" {
		t.Errorf("kept is %v", kept)
	}
	if err := os.WriteFile(filepath.Join(dir, "value.json"), []byte(`{"a"`), 0o600); err != nil {
		t.Fatal(err)
	}
	third := NewValue[map[string]string](dir, "value.json")
	third.started = second.started
	if kept := third.Kept(); kept != nil {
		t.Errorf("a truncated file gives %v, want nothing", kept)
	}
	nowhere := NewValue[map[string]string]("", "value.json")
	nowhere.started = second.started
	if err := nowhere.Save(map[string]string{}); err != nil || nowhere.Kept() != nil {
		t.Errorf("without a directory something is kept: %v", err)
	}
}
