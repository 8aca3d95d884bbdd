package cells

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv"
)

// All workloads in both members request 8 CPUs. A quota of 10 has room for them once, and not twice.
var (
	cpuPerPod = resource.MustParse("500m")
	cpuUsed   = resource.MustParse("8")
)

const (
	quotasPath = "/apis/policy.karmada.io/v1alpha1/namespaces/shop/federatedresourcequotas"
	quota      = `{"apiVersion":"policy.karmada.io/v1alpha1","kind":"FederatedResourceQuota","metadata":{"name":"team","namespace":"shop"},"spec":{"overall":{"cpu":"10"}}}`
)

func (w *world) createQuota() {
	w.Helper()
	if err := w.gateway.CoreV1().RESTClient().Post().AbsPath(quotasPath).Body([]byte(quota)).SetHeader("Content-Type", "application/json").Do(w.Context()).Error(); err != nil {
		w.Fatal(err)
	}
}

// checkQuota checks that each workload counts once, whatever cell it is in and has been in.
func (w *world) checkQuota() {
	w.Helper()
	defer w.logDuration("the quota counts each workload once")()
	testenv.Eventually(w, "the quota counts each workload once", func(ctx context.Context) (bool, error) {
		raw, err := w.gateway.CoreV1().RESTClient().Get().AbsPath(quotasPath, "team").Do(ctx).Raw()
		if err != nil {
			return false, err
		}
		var now policyv1alpha1.FederatedResourceQuota
		if err := json.Unmarshal(raw, &now); err != nil {
			return false, err
		}
		used := now.Status.OverallUsed["cpu"]
		return used.Cmp(cpuUsed) == 0, fmt.Errorf("%s CPUs are used, recorded %v", used.String(), now.Annotations)
	})
}
