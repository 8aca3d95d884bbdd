package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/controlplane"
)

// P15: by default the namespaces of Kubernetes are not created in members. Expressions match the whole name.
func TestSkippedNamespaces(t *testing.T) {
	if flag := newEngine().Flags().Lookup("skipped-propagating-namespaces"); flag == nil || flag.DefValue != "[kube-.*]" {
		t.Errorf("the flag is %+v", flag)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"c": {Host: "https://127.0.0.1:1"}}, "c"), kubeconfig); err != nil {
		t.Fatal(err)
	}
	o := engineOptions{cell: "cell-a", kubeconfig: kubeconfig, purgeMode: "Gracefully", skippedNamespaces: []string{"kube-.*", "a|b"}}
	o.failover.Taints.Rates.Normal, o.failover.Taints.Rates.Disrupted = 1, 1
	config, err := o.complete()
	if err != nil {
		t.Fatal(err)
	}
	var skipped []string
	for _, name := range []string{"kube-system", "my-kube-system", "a", "b", "ab", "team"} {
		for _, expression := range config.SkippedNamespaces {
			if expression.MatchString(name) {
				skipped = append(skipped, name)
			}
		}
	}
	if want := []string{"kube-system", "a", "b"}; !slices.Equal(skipped, want) {
		t.Errorf("%v are skipped, want %v", skipped, want)
	}
	o.skippedNamespaces = []string{"("}
	if _, err := o.complete(); err == nil || !strings.Contains(err.Error(), "--skipped-propagating-namespaces") {
		t.Errorf("an invalid expression: %v", err)
	}
}
