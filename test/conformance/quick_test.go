package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "github.com/cellplane/cellplane/internal/cli" // makes the test cache depend on the program
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellplane is the program under test.
var cellplane string

func TestMain(m *testing.M) { testenv.ProgramMain(m, &cellplane) }

// quick are specs that run with all other tests: some for each part of the API, each of a few seconds.
var quick = []string{
	"Discovery should validate PreferredVersion for each APIGroup",
	"AggregatedDiscovery should support aggregated discovery interface for CRDs",
	"Watchers should be able to start watching from a specific resource version",
	"Watchers should be able to restart watching from the last resource version observed by the previous watch",
	"Servers with support for API chunking should return chunks of results for list calls",
	"Servers with support for Table transformation should return chunks of table results for list calls",
	"FieldValidation should detect unknown and duplicate fields of a typed object",
	"FieldValidation should create/apply an invalid CR with extra properties for CRD with validation schema",
	"Simple CustomResourceDefinition creating/deleting custom resource definition objects works",
	"ResourceQuota should create a ResourceQuota and ensure its status is promptly calculated",
	"ServerSideApply should work for CRDs",
	"ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should validate against a Deployment",
	"ServiceAccounts should guarantee kube-root-ca.crt exist in any namespace",
	"Kubectl describe should check if kubectl describe prints relevant information for cronjob",
	"Kubectl api-versions should check if v1 is in available api versions",
}

// TestQuick runs a small part of what `make conformance` runs.
func TestQuick(t *testing.T) {
	testenv.Binaries(t)
	t.Chdir("../..") // where `make conformance` runs
	dir := t.TempDir()
	suite, err := buildSuite(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	f := federation{program: cellplane, dir: filepath.Join(dir, "federation")}
	t.Cleanup(func() {
		if err := f.purge(); err != nil {
			t.Error(err)
		}
	})
	if err := f.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	config, err := f.kubeconfig("/")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range quick {
		names = append(names, regexp.QuoteMeta(name))
	}
	report, err := suite.run(t.Context(), config, "/", strings.Join(names, "|"))
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range report.failed {
		t.Error(failure)
	}
	if ran := report.passed + len(report.failed); ran != len(quick) {
		t.Errorf("%d specs ran, want %d: each name must be that of one spec", ran, len(quick))
	}
}
