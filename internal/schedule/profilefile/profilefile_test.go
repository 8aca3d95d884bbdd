package profilefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

const header = "apiVersion: cellplane.io/v1alpha1\nkind: SchedulingProfile\n"

// TestRead reads two profiles and checks the API's defaults.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profiles.yaml")
	text := header + "metadata: {name: a}\nspec: {clusters: {gatherPending: true}}\n---\n---\n" +
		header + "metadata: {name: b}\nspec: {sites: {drain: {sites: [old], pace: {maxUnavailablePercent: 0}}, burst: {comeBack: {stepPercent: 50}}}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	profiles, err := Read(path)
	if err != nil || len(profiles) != 2 || profiles[0].Name != "a" || !profiles[0].Spec.Clusters.GatherPending || profiles[1].Name != "b" {
		t.Fatalf("%v %v", profiles, err)
	}
	sites := profiles[1].Spec.Sites
	if sites.GroupBy != cellplanev1alpha1.SiteByRegion || sites.Order != cellplanev1alpha1.SitesAsPlaced {
		t.Errorf("the defaults are missing: %+v", sites)
	}
	if pace := sites.Drain.Pace; pace.StepPercent != 10 || pace.Interval.Duration != 30*time.Second || pace.MaxUnavailablePercent != 0 {
		t.Errorf("pace of the drain = %+v", pace)
	}
	if pace := sites.Burst.ComeBack; pace.StepPercent != 50 || pace.MaxUnavailablePercent != 10 {
		t.Errorf("pace of comeBack = %+v", pace)
	}
	if profiles, err := Read(""); err != nil || profiles != nil {
		t.Errorf("no path: %v %v", profiles, err)
	}
	if _, err := Read(path + ".missing"); err == nil {
		t.Error("a missing file is accepted")
	}
}

// TestInvalid expects one clear sentence for each invalid file.
func TestInvalid(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"invalid YAML":        {"{", "document 1"},
		"another kind":        {"apiVersion: cellplane.io/v1alpha1\nkind: Cell\nmetadata: {name: a}", `want a SchedulingProfile`},
		"without version":     {"kind: SchedulingProfile\nmetadata: {name: a}", `want a SchedulingProfile`},
		"without name":        {header + "spec: {}", "metadata.name"},
		"invalid name":        {header + "metadata: {name: A_B}", "metadata.name"},
		"unknown field":       {header + "metadata: {name: a}\nspec: {sites: {oder: AsPlaced}}", "spec.sites.oder"},
		"unknown value":       {header + "metadata: {name: a}\nspec: {sites: {order: Fastest}}", "spec.sites.order"},
		"unknown scorer":      {header + "metadata: {name: a}\nspec: {clusters: {scores: [{name: Luck, weight: 1}]}}", "spec.clusters.scores[0].name"},
		"out of bounds":       {header + "metadata: {name: a}\nspec: {sites: {reservePercent: 101}}", "spec.sites.reservePercent"},
		"wrong type":          {header + "metadata: {name: a}\nspec: {sites: {reservePercent: many}}", "spec.sites.reservePercent"},
		"duplicate profile":   {header + "metadata: {name: a}\nspec: {}\n---\n" + header + "metadata: {name: a}\nspec: {}", `already`},
		"duplicate key":       {header + "metadata: {name: a}\nmetadata: {name: b}", "metadata"},
		"drain without sites": {header + "metadata: {name: a}\nspec: {sites: {drain: {}}}", "spec.sites.drain.sites"},
	} {
		t.Run(name, func(t *testing.T) {
			profiles, err := Parse([]byte(test.text))
			if err == nil {
				t.Fatalf("accepted as %+v", profiles)
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one sentence about %q", err, test.want)
			}
		})
	}
}
