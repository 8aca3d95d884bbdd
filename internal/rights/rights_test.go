package rights_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/rights"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return obj
}

const (
	role        = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: x, namespace: ns}"
	clusterRole = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: x"
	binding     = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x, namespace: ns}"
	secret      = "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: ns"
)

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct{ before, after, want string }{
		"rules":               {role + ", rules: [{verbs: [get]}]}", role + ", rules: [{verbs: ['*']}]}", "changes rules"},
		"new rules":           {role + "}", role + ", rules: [{verbs: ['*']}]}", "changes rules"},
		"fewer rules":         {role + ", rules: [{verbs: [get]}]}", role + "}", "changes rules"},
		"empty is absent":     {role + ", rules: []}", role + "}", ""},
		"the same":            {role + ", rules: [{verbs: [get]}]}", role + ", rules: [{verbs: [get]}]}", ""},
		"subjects":            {binding + ", subjects: [{kind: User, name: a}]}", binding + ", subjects: [{kind: User, name: b}]}", "changes subjects"},
		"role":                {binding + ", roleRef: {kind: Role, name: a}}", binding + ", roleRef: {kind: ClusterRole, name: a}}", "changes roleRef"},
		"aggregation":         {clusterRole + "}}", clusterRole + "}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}", "changes aggregationRule"},
		"aggregation of all":  {clusterRole + "}, aggregationRule: {clusterRoleSelectors: []}}", clusterRole + "}, aggregationRule: {clusterRoleSelectors: [{}]}}", "changes aggregationRule"},
		"aggregated by label": {clusterRole + "}}", clusterRole + ", labels: {rbac.authorization.k8s.io/aggregate-to-admin: 'true'}}}", "changes metadata.labels[rbac.authorization.k8s.io/aggregate-to-admin]"},
		"annotation":          {clusterRole + "}}", clusterRole + ", annotations: {a: b}}}", ""},
		"label of a Role":     {role + "}", strings.Replace(role, "name: x", "name: x, labels: {a: b}", 1) + "}", ""},
		"another version":     {role + "}", strings.Replace(role, "/v1", "/v1beta1", 1) + "}", "changes apiVersion"},
		"OpenShift":           {strings.Replace(role, "rbac.authorization.k8s.io", "authorization.openshift.io", 1) + "}", strings.Replace(role, "rbac.authorization.k8s.io", "authorization.openshift.io", 1) + ", rules: [{verbs: ['*']}]}", "changes rules"},
		"becomes a token":     {secret + "}}", secret + ", annotations: {kubernetes.io/service-account.name: admin}}, type: kubernetes.io/service-account-token}", "changes metadata.annotations[kubernetes.io/service-account.name]"},
		"token of another":    {secret + ", annotations: {kubernetes.io/service-account.name: a}}, type: kubernetes.io/service-account-token}", secret + ", annotations: {kubernetes.io/service-account.name: b}}, type: kubernetes.io/service-account-token}", "changes metadata.annotations"},
		"bootstrap token":     {secret + "}, type: bootstrap.kubernetes.io/token}", secret + "}, type: bootstrap.kubernetes.io/token, data: {auth-extra-groups: eA==}}", "changes data"},
		"data of a Secret":    {secret + "}, data: {a: eA==}}", secret + "}, data: {a: eQ==}}", ""},
		"becomes a Role":      {"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", role + ", rules: [{verbs: ['*']}]}", "changes apiVersion"},
		"grants nothing":      {"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: b}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := rights.Check("the test", object(t, test.after), object(t, test.before))
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// What a member has may be retained there, and nothing else.
func TestCheckSeveralSources(t *testing.T) {
	desired, observed := object(t, role+", rules: [{verbs: [get]}]}"), object(t, role+", rules: [{verbs: [list]}]}")
	if err := rights.Check("retaining", observed.DeepCopy(), desired, observed); err != nil {
		t.Error(err)
	}
	if err := rights.Check("retaining", object(t, role+", rules: [{verbs: [get, list]}]}"), desired, observed); err == nil {
		t.Error("rules of neither source pass")
	}
}

// Rights are a snapshot: an object that is changed in place afterwards differs from them.
func TestSnapshot(t *testing.T) {
	obj := object(t, role+", rules: [{verbs: [get]}]}")
	before := rights.Of(obj)
	obj.Object["rules"].([]any)[0].(map[string]any)["verbs"].([]any)[0] = "*"
	if _, changed := rights.Of(obj).Changed(before); !changed {
		t.Error("a change in place is not seen")
	}
}
