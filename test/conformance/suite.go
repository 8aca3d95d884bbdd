package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cellplane/cellplane/internal/kubebin"
)

// page lists the specs that do not run.
const page = "docs/conformance.md"

// selection has the labels of the specs: all for conformance, and others of four groups that need no special feature.
const selection = "Conformance || (sig-api-machinery || sig-auth || sig-cli || sig-apps) && " +
	"Feature: isEmpty && FeatureGate: isEmpty && !Disruptive && !Flaky"

// suite is the program with the specs, and the kubectl that they run.
type suite struct{ program, kubectl string }

// buildSuite builds the programs of the nested module. The first time that takes some minutes.
func buildSuite(ctx context.Context, dir string) (*suite, error) {
	s := &suite{program: filepath.Join(dir, "suite.test"), kubectl: filepath.Join(dir, "kubectl")}
	flags := "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + kubebin.Version()
	for _, args := range [][]string{{"test", "-c", "-vet=off", flags, "-o", s.program, "."}, {"build", flags, "-o", s.kubectl, "k8s.io/kubernetes/cmd/kubectl"}} {
		build := exec.CommandContext(ctx, "go", args...)
		build.Dir = "test/conformance/suite"
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the control planes are built: most packages are the same
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("building the suite: %w", err)
		}
	}
	return s, nil
}

// row matches a row of a table of exclusions: an expression in backquotes, the surface, and a reason.
var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:all|`([^`]+)`) \\| [^|]+ \\|$")

// exclusions returns the expressions in the page for a surface. A vertical bar is written as \|.
func exclusions(text, surface string) []string {
	var all []string
	for _, match := range row.FindAllStringSubmatch(strings.ReplaceAll(text, `\|`, "\x00"), -1) {
		if match[2] == "" || match[2] == surface {
			all = append(all, strings.ReplaceAll(match[1], "\x00", "|"))
		}
	}
	return all
}

// run runs the specs and returns their results.
func (s *suite) run(ctx context.Context, kubeconfig, surface, focus string) (*report, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(s.program), fileName(surface)+".json")
	args := []string{
		"--kubeconfig=" + kubeconfig, "--kubectl-path=" + s.kubectl, "--provider=skeleton", "--num-nodes=1",
		"--ginkgo.label-filter=" + selection, "--ginkgo.focus=" + focus, "--ginkgo.json-report=" + file, "--ginkgo.no-color", "--ginkgo.v",
		"--ginkgo.timeout=24h", "--test.timeout=0",
	}
	for _, expression := range exclusions(string(text), surface) {
		args = append(args, "--exclude="+expression)
	}
	command := exec.CommandContext(ctx, s.program, args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(s.kubectl)+":"+os.Getenv("PATH"))
	failure := command.Run()
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, errors.Join(failure, err)
	}
	r, err := parseReport(data)
	if err == nil && failure != nil && len(r.failed) == 0 {
		err = failure
	}
	return r, err
}

// fileName returns the name of the files for a surface: root or federation.
func fileName(surface string) string {
	if surface == "/" {
		return "root"
	}
	return strings.TrimPrefix(surface, "/")
}

// report has the results of a run.
type report struct {
	passed int
	failed []string
}

// parseReport reads a JSON report of Ginkgo. A spec that skips itself counts as failed.
func parseReport(data []byte) (*report, error) {
	var suites []struct {
		SpecReports []struct {
			State                   string
			LeafNodeType            string
			LeafNodeText            string
			ContainerHierarchyTexts []string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, err
	}
	r := &report{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			switch {
			case spec.State == "passed":
				if spec.LeafNodeType == "It" {
					r.passed++
				}
			case spec.State == "skipped" && spec.Failure.Message == "": // excluded, or not selected
			default:
				message, _, _ := strings.Cut(spec.Failure.Message, "\n")
				name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
				r.failed = append(r.failed, fmt.Sprintf("%s: %s: %s", name, spec.State, message))
			}
		}
	}
	if r.passed+len(r.failed) == 0 {
		return nil, errors.New("no spec ran")
	}
	slices.Sort(r.failed)
	return r, nil
}

func (r *report) print(out io.Writer, surface string) {
	fmt.Fprintf(out, "\nThrough %s: %d specs passed, %d failed.\n", surface, r.passed, len(r.failed))
	for _, name := range r.failed {
		fmt.Fprintln(out, "  FAILED", name)
	}
}
