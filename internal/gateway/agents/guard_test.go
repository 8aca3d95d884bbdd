package agents

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/cellplane/cellplane/api/names"
)

func TestGuard(t *testing.T) {
	token := &user.DefaultInfo{Name: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", names.AgentBootstrapGroup, user.AllAuthenticated}}
	otherToken := &user.DefaultInfo{Name: "system:bootstrap:fedcba", Groups: []string{"system:bootstrappers:nodes"}}
	agent := &user.DefaultInfo{Name: "system:karmada:agent:m1", Groups: []string{names.AgentsGroup}}
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	forged := &user.DefaultInfo{Name: "alice", Groups: []string{names.AgentBootstrapGroup}}

	requests := func(verb, name, subresource string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, APIGroup: "certificates.k8s.io", Resource: "certificatesigningrequests", Name: name, Subresource: subresource, ResourceRequest: true}
	}
	maps := func(verb, namespace, name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, Resource: "configmaps", Namespace: namespace, Name: name, ResourceRequest: true}
	}
	reports := func(cluster string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: "create", APIGroup: "metrics.cellplane.io", Resource: "metricsreports", Name: cluster, ResourceRequest: true}
	}
	tunnels := func(verb, cluster string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, APIGroup: "cluster.karmada.io", Resource: "clusters", Subresource: "tunnel", Name: cluster, ResourceRequest: true}
	}
	for _, test := range []struct {
		what    string
		user    user.Info
		request authorizer.AttributesRecord
		refused bool
	}{
		{"a token requests a certificate", token, requests("create", "", ""), false},
		{"a token reads its request", token, requests("get", "agent-abcdef-x", ""), false},
		{"a token reads a request of another token", token, requests("get", "agent-fedcba-x", ""), true},
		{"a token lists requests", token, requests("list", "", ""), true},
		{"a token watches its request", token, requests("watch", "agent-abcdef-x", ""), true},
		{"a token approves its request", token, requests("update", "agent-abcdef-x", "approval"), true},
		{"a token deletes its request", token, requests("delete", "agent-abcdef-x", ""), true},
		{"a token creates an approval", token, requests("create", "", "approval"), true},
		{"a token reads cluster-info", token, maps("get", "kube-public", "cluster-info"), false},
		{"a token writes cluster-info", token, maps("update", "kube-public", "cluster-info"), true},
		{"a token reads another ConfigMap", token, maps("get", "kube-public", "other"), true},
		{"a token reads a ConfigMap of that name elsewhere", token, maps("get", "default", "cluster-info"), true},
		{"a token impersonates", token, authorizer.AttributesRecord{Verb: "impersonate", Resource: "users", Name: "admin", ResourceRequest: true}, true},
		{"a token reads the version", token, authorizer.AttributesRecord{Verb: "get", Path: "/version"}, false},
		{"a token posts to a path", token, authorizer.AttributesRecord{Verb: "post", Path: "/version"}, true},
		{"a user who is given the group", forged, requests("create", "", ""), true},
		{"a token of another group", otherToken, maps("list", "default", ""), false},
		{"an agent reads its request", agent, requests("get", "csr-x", ""), false},
		{"an agent watches its request by name", agent, requests("watch", "csr-x", ""), false},
		{"an agent lists requests", agent, requests("list", "", ""), true},
		{"an agent requests a certificate", agent, requests("create", "", ""), false},
		{"an agent does other things", agent, maps("list", "karmada-es-m1", ""), false},
		{"an agent reports metrics of its cluster", agent, reports("m1"), false},
		{"an agent reports metrics of another cluster", agent, reports("m2"), true},
		{"an agent reports metrics of no cluster", agent, reports(""), true},
		{"an agent opens a tunnel of its cluster", agent, tunnels("create", "m1"), false},
		{"an agent opens a tunnel of another cluster", agent, tunnels("create", "m2"), true},
		{"an agent opens a tunnel of no cluster", agent, tunnels("create", ""), true},
		{"an administrator opens a tunnel", &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, tunnels("create", "m1"), true},
		{"a user opens a tunnel by a GET", &user.DefaultInfo{Name: "alice"}, tunnels("get", "m1"), true},
		{"a token opens a tunnel", token, tunnels("create", "abcdef"), true},
		{"anybody reads cluster-info", anonymous, maps("get", "kube-public", "cluster-info"), false},
		{"anybody deletes cluster-info", anonymous, maps("delete", "kube-public", "cluster-info"), true},
		{"anybody lists ConfigMaps", anonymous, maps("list", "kube-public", "cluster-info"), true},
		{"anybody reads health", anonymous, authorizer.AttributesRecord{Verb: "get", Path: "/livez"}, false},
	} {
		test.request.User = test.user
		decision, reason, err := Guard{}.Authorize(t.Context(), test.request)
		if err != nil || (decision == authorizer.DecisionDeny) != test.refused || decision == authorizer.DecisionAllow {
			t.Errorf("%s: got %v (%s), %v", test.what, decision, reason, err)
		}
	}
}
