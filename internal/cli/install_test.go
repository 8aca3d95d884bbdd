package cli

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/internal/install"
)

// TestChartFlags parses the commands of all pods of the chart, so that a flag cannot be renamed there or here alone.
func TestChartFlags(t *testing.T) {
	manifests, err := install.Render(install.Release{Name: "cp", Namespace: "fed", Values: map[string]any{ // those with flags of their own
		"networkPolicies": map[string]any{"metricsFrom": []any{map[string]any{"podSelector": map[string]any{}}}},
		"monitoring":      map[string]any{"serviceMonitors": map[string]any{"enabled": true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, object := range manifests.Objects {
		for _, path := range [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}} {
			found, ok, _ := unstructured.NestedMap(object.Object, path...)
			if !ok {
				continue
			}
			var pod corev1.PodSpec
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found, &pod); err != nil {
				t.Fatal(err)
			}
			for _, container := range pod.Containers {
				if !strings.Contains(container.Image, "/cellplane:") {
					continue
				}
				command, args, err := newRoot().Find(container.Args)
				if err != nil {
					t.Errorf("%s: %v", object.GetName(), err)
					continue
				}
				if err := command.ParseFlags(args); err != nil {
					t.Errorf("%s: %v", object.GetName(), err)
				}
				if err := command.ValidateArgs(command.Flags().Args()); err != nil {
					t.Errorf("%s: %v", object.GetName(), err)
				}
				seen[command.Name()] = true
			}
		}
	}
	for _, name := range []string{"engine", "hub-manager", "gateway", "cluster-gateway", "federate"} {
		if !seen[name] {
			t.Errorf("no pod runs %s", name)
		}
	}
}

// TestInstallDryRun prints the objects with the values of files and flags.
func TestInstallDryRun(t *testing.T) {
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"install", "--dry-run", "-n", "fed", "-f", "../../deploy/charts/examples/one-node.yaml", "--set", "images.prefix=registry.example.com/x"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"registry.example.com/x/kube-apiserver:v1.36.3", "namespace: fed", "name: cellplane-cell-a-etcd"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(out.String(), "cell-b") || strings.Contains(out.String(), "helm.sh/hook") {
		t.Error("there is a second cell, or a test of Helm")
	}
	bad := &installation{set: []string{"cells[0].nam=a"}, dryRun: true}
	if err := bad.run(t.Context(), &out, &out); err == nil || !strings.Contains(err.Error(), "values do not fit the chart") {
		t.Errorf("bad values: %v", err)
	}
}
