package agent

import (
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
)

// rightsAreNarrow checks what the identity of the agent may do, at both surfaces of the gateway and at the hub.
func (w *world) rightsAreNarrow() {
	config := w.config(filepath.Join(w.dir, "federation", "agent-"+pulled+".kubeconfig"), "")
	federation := strings.TrimSuffix(config.Host, "/")
	root := strings.TrimSuffix(federation, "/federation")
	if root == federation {
		w.Fatalf("the agent talks to %s, not to the gateway's /federation", config.Host)
	}
	hub := w.config(filepath.Join(w.dir, "hub", "agent-"+pulled+".kubeconfig"), "").Host
	for _, host := range []string{root, federation, hub} {
		config.Host = host
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			w.Fatal(err)
		}
		w.checkRights(host, client.RESTClient())
		if host != hub {
			w.checkOwnWorks(host, client.RESTClient())
		}
	}
}

// checkOwnWorks checks that the agent cannot attach a Work to another binding. Gateways decide by the content of the patch, also if there is no such Work.
func (w *world) checkOwnWorks(host string, client rest.Interface) {
	w.Helper()
	patch := `{"metadata":{"annotations":{"` + names.ResourceBindingNameAnnotation + `":"another"}}}`
	err := client.Patch(types.MergePatchType).AbsPath(worksOf + pulled + "/works/any").Body([]byte(patch)).Do(w.Context()).Error()
	if !apierrors.IsForbidden(err) {
		w.Errorf("%s: the agent's change of the annotations of a Work was answered with %v, want 403", host, err)
	}
}

// reporterIsNarrow checks that the agent of a cluster in push mode may report metrics of this cluster, and nothing else.
func (w *world) reporterIsNarrow() {
	client, err := discovery.NewDiscoveryClientForConfig(w.config(filepath.Join(w.dir, "federation", "agent-"+pushed+".kubeconfig"), ""))
	if err != nil {
		w.Fatal(err)
	}
	const reports = "/apis/metrics.cellplane.io/v1alpha1/metricsreports/"
	if err := send(w, client.RESTClient(), attempt{"POST", reports + pushed}); !apierrors.IsBadRequest(err) {
		w.Errorf("an empty report of the agent of %s was answered with %v, want 400", pushed, err)
	}
	for _, a := range append([]attempt{
		{"POST", reports + pulled},
		{"GET", worksOf + pushed + "/works/any"},
		{"PUT", leases + "/" + pulled},
	}, append(allowed, refused...)...) {
		if a == (attempt{"POST", reports + pushed}) {
			continue
		}
		if err := send(w, client.RESTClient(), a); !apierrors.IsForbidden(err) {
			w.Errorf("the reporting agent's %s of %s was answered with %v, want 403", a.verb, a.path, err)
		}
	}
}

// attempt is a request of the agent.
type attempt struct{ verb, path string }

const (
	worksOf  = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-"
	clusters = "/apis/cluster.karmada.io/v1alpha1/clusters"
	leases   = "/apis/coordination.k8s.io/v1/namespaces/" + names.ClusterNamespace + "/leases"
)

var (
	allowed = []attempt{
		{"GET", worksOf + pulled + "/works"},
		{"GET", clusters + "/" + pulled},
		{"GET", clusters + "?fieldSelector=metadata.name%3D" + pulled},
		{"PATCH", clusters + "/" + pulled + "/status"},
		{"GET", leases + "/" + pulled},
		{"GET", "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations"},
		{"GET", "/apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations"},
	}
	refused = []attempt{
		// other clusters
		{"GET", worksOf + pushed + "/works"},
		{"GET", "/apis/work.karmada.io/v1alpha1/works"},
		{"PUT", worksOf + pushed + "/works/any/status"},
		{"PATCH", worksOf + pushed + "/works/any"},
		{"GET", clusters},
		{"GET", clusters + "/" + pushed},
		{"PATCH", clusters + "/" + pushed},
		{"PATCH", clusters + "/" + pushed + "/status"},
		{"GET", clusters + "/" + pushed + "/proxy/api/v1/nodes"},
		{"POST", clusters + "/" + pushed + "/tunnel"},
		{"GET", leases},
		{"GET", leases + "/" + pushed},
		{"PUT", leases + "/" + pushed},
		{"POST", leases},
		{"POST", "/apis/metrics.cellplane.io/v1alpha1/metricsreports/" + pushed},
		{"GET", "/apis/metrics.cellplane.io/v1alpha1/workloadmetrics"},
		// its own cluster
		{"POST", worksOf + pulled + "/works"},
		{"DELETE", worksOf + pulled + "/works/any"},
		{"DELETE", worksOf + pulled + "/works"},
		{"PATCH", clusters + "/" + pulled},
		{"DELETE", clusters + "/" + pulled},
		{"GET", clusters + "/" + pulled + "/proxy/api/v1/nodes"},
		{"DELETE", leases + "/" + pulled},
		{"GET", "/api/v1/namespaces/karmada-es-" + pulled + "/secrets"},
		// everything else
		{"GET", "/apis/apps/v1/namespaces/" + namespace + "/deployments"},
		{"PATCH", "/apis/apps/v1/namespaces/" + namespace + "/deployments/web-0"},
		{"GET", "/apis/work.karmada.io/v1alpha2/namespaces/" + namespace + "/resourcebindings"},
		{"GET", "/api/v1/namespaces/" + namespace + "/configmaps"},
		{"GET", "/api/v1/namespaces/" + names.ClusterNamespace + "/secrets"},
		{"GET", "/api/v1/namespaces/" + names.SystemNamespace + "/secrets"},
		{"GET", "/api/v1/secrets"},
		{"GET", "/api/v1/namespaces"},
		{"GET", "/api/v1/pods"},
		{"GET", "/api/v1/nodes"},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"},
		{"POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"},
		{"POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"},
		{"GET", "/apis/cellplane.io/v1alpha1/cells"},
		{"GET", "/apis/policy.karmada.io/v1alpha1/namespaces/" + namespace + "/propagationpolicies"},
		{"GET", "/metrics"},
	}
)

func send(w *world, client rest.Interface, a attempt) error {
	path, query, _ := strings.Cut(a.path, "?")
	request := client.Verb(a.verb).AbsPath(path)
	if selector, found := strings.CutPrefix(query, "fieldSelector="); found {
		request.Param("fieldSelector", strings.ReplaceAll(selector, "%3D", "="))
	}
	switch a.verb {
	case "PATCH":
		request.SetHeader("Content-Type", string(types.MergePatchType)).Body([]byte("{}"))
	case "POST", "PUT":
		request.SetHeader("Content-Type", "application/json").Body([]byte("{}"))
	}
	return request.Do(w.Context()).Error()
}

func (w *world) checkRights(host string, client rest.Interface) {
	w.Helper()
	for _, a := range allowed {
		if err := send(w, client, a); err != nil {
			w.Errorf("%s: the agent's %s of %s failed: %v", host, a.verb, a.path, err)
		}
	}
	for _, a := range refused {
		if err := send(w, client, a); !apierrors.IsForbidden(err) {
			w.Errorf("%s: the agent's %s of %s was answered with %v, want 403", host, a.verb, a.path, err)
		}
	}
}
