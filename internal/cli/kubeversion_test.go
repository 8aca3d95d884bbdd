package cli

import "testing"

func TestKubernetesVersion(t *testing.T) {
	for clientGo, want := range map[string]string{"v0.36.3": "v1.36.3", "v0.37.0-rc.1": "v1.37.0-rc.1", "v11.0.0+incompatible": "", "(devel)": "", "": ""} {
		if got, ok := kubernetesVersion(clientGo); got != want || ok != (want != "") {
			t.Errorf("client-go %q is of Kubernetes %q, want %q", clientGo, got, want)
		}
	}
}
