package agents

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/identity"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/tunnel"
)

// ClusterInfoPath is the path of the ConfigMap by which clusters that register recognize the gateway.
const ClusterInfoPath = "/api/v1/namespaces/" + metav1.NamespacePublic + "/configmaps/" + bootstrapapi.ConfigMapClusterInfo

// Guard refuses what bootstrap tokens of clusters, agents and anonymous users may not do, whatever RBAC grants to them. It allows nothing.
type Guard struct{}

// Authorize implements authorizer.Authorizer.
func (Guard) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if reason := refuse(attributes); reason != "" {
		return authorizer.DecisionDeny, reason, nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func refuse(a authorizer.Attributes) string {
	u := a.GetUser()
	if u == nil {
		return ""
	}
	cluster, _ := identity.Cluster(u.GetName(), u.GetGroups())
	switch {
	case isTunnel(a) && (cluster == "" || a.GetName() != cluster):
		return "only the agent of a cluster may open its tunnels"
	case slices.Contains(u.GetGroups(), names.AgentBootstrapGroup):
		if !registers(u, a) {
			return "a bootstrap token of clusters can only be used to register a cluster"
		}
	case isAgent(u):
		if isRequests(a) && a.GetName() == "" && a.IsReadOnly() {
			return "an agent may read CertificateSigningRequests only by their names"
		}
		if isReport(a) && a.GetName() != cluster {
			return "an agent may report metrics of its own cluster only"
		}
	case u.GetName() == user.Anonymous && a.IsResourceRequest():
		if !readsClusterInfo(a) {
			return "anonymous users may only read " + metav1.NamespacePublic + "/" + bootstrapapi.ConfigMapClusterInfo
		}
	}
	return ""
}

// registers reports whether a request is part of the registration of a cluster.
func registers(u user.Info, a authorizer.Attributes) bool {
	if !a.IsResourceRequest() {
		return a.IsReadOnly() // health and the version, if RBAC allows it
	}
	id, isToken := strings.CutPrefix(u.GetName(), bootstrapapi.BootstrapUserPrefix)
	switch {
	case !isToken:
		return false
	case readsClusterInfo(a):
		return true
	case !isRequests(a):
		return false
	case a.GetVerb() == "create":
		return true
	}
	return a.GetVerb() == "get" && strings.HasPrefix(a.GetName(), identity.RequestPrefix(id))
}

func isAgent(u user.Info) bool {
	_, agent := identity.Cluster(u.GetName(), u.GetGroups())
	return agent
}

func isRequests(a authorizer.Attributes) bool {
	return a.GetAPIGroup() == "certificates.k8s.io" && a.GetResource() == "certificatesigningrequests" && a.GetSubresource() == ""
}

func isReport(a authorizer.Attributes) bool {
	return a.GetAPIGroup() == metricsv1alpha1.GroupName && a.GetResource() == "metricsreports"
}

func isTunnel(a authorizer.Attributes) bool {
	return a.GetAPIGroup() == clusterv1alpha1.GroupVersion.Group && a.GetResource() == "clusters" && a.GetSubresource() == tunnel.Subresource
}

func readsClusterInfo(a authorizer.Attributes) bool {
	resource := schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}
	return a.GetVerb() == "get" && a.GetSubresource() == "" && placement.IsClusterInfo(resource, a.GetNamespace(), a.GetName())
}
