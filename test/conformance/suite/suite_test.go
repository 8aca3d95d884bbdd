// Package suite is a program of Kubernetes' own end-to-end tests: those for the API, access control, kubectl and the
// workload controllers. It has its own module because it needs most of Kubernetes' dependencies.
package suite

import (
	"context"
	"flag"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	"k8s.io/kubernetes/test/fixtures"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/kubectl"
)

// excluded are expressions for specs that do not run.
var excluded []string

// TestMain reads the flags of the specs.
func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Func("exclude", "regular expression for specs that do not run; may be repeated", func(expression string) error {
		excluded = append(excluded, expression)
		return nil
	})
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

// TestConformance runs the specs. A federation has no nodes of its own, so nothing waits for nodes and pods before.
func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	checkExclusions(t)
	suite.SkipStrings = append(suite.SkipStrings, excluded...)
	ginkgo.RunSpecs(t, "Conformance", suite, reporter)
}

var _ = ginkgo.BeforeSuite(func(context.Context) { framework.TestContext.IPFamily = "ipv4" })

// checkExclusions finds exclusions of specs that do not exist, or no longer exist.
func checkExclusions(t *testing.T) {
	t.Helper()
	specs := ginkgo.PreviewSpecs("Conformance").SpecReports
	for _, expression := range excluded {
		compiled, err := regexp.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(specs, func(spec ginkgo.SpecReport) bool { return compiled.MatchString(spec.FullText()) }) {
			t.Fatalf("no spec matches the exclusion %s", expression)
		}
	}
}
