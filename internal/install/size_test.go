package install

import (
	"testing"

	"github.com/cellplane/cellplane/internal/size"
)

// planned is the size in the first lines of values.yaml.
func planned(t *testing.T) []size.Part {
	t.Helper()
	in := size.Defaults
	in.Nodes, in.Services, in.Pods, in.Clusters, in.ChangesPerDay = 1000, 1000, 20000, 10, 1000
	plan, err := size.New(in, size.MeasuredCosts())
	if err != nil {
		t.Fatal(err)
	}
	return plan.Parts
}

// workloadsOf returns the workloads of a part.
func workloadsOf(part size.Part) []string {
	if part.Where == "each cell" {
		name := map[string]string{"kube-apiserver": "apiserver"}[part.Name]
		if name == "" {
			name = part.Name
		}
		return []string{"cp-cell-a-" + name, "cp-cell-b-" + name}
	}
	return []string{map[string]string{
		"hub/etcd": "cp-hub-etcd", "hub/kube-apiserver": "cp-hub-apiserver", "hub/kube-controller-manager": "cp-hub-controllers",
		"hub/hub-manager": "cp-hub-manager", "hub/engine": "cp-hub-engine",
		"federation/gateway": "cp-gateway", "federation/cluster-gateway": "cp-cluster-gateway", "federation/kube-controller-manager": "cp-federation-controllers",
	}[part.Where+"/"+part.Name]}
}
