package rbac_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/gateway/rbac"
	"github.com/cellplane/cellplane/internal/testenv"
)

// Few names, so that rules, subjects and requests often match.
var (
	verbs      = []string{"get", "list", "create", "delete", "*"}
	groups     = []string{"", "apps", "example.io", "*"}
	resources  = []string{"pods", "pods/log", "deployments", "deployments/scale", "*/scale", "*", "pods/*"}
	names      = []string{"a", "b"}
	paths      = []string{"/healthz", "/healthz/*", "/metrics", "*", "/x*"}
	namespaces = []string{"rbac-one", "rbac-two"}
	users      = []string{"alice", "bob", "system:serviceaccount:rbac-one:robot", "system:serviceaccount:rbac-two:robot"}
	userGroups = []string{"team-a", "team-b"}
)

func some(pool []string) *rapid.Generator[[]string] {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 1, 2, rapid.ID)
}

func ruleGenerator(namespaced bool) *rapid.Generator[rbacv1.PolicyRule] {
	return rapid.Custom(func(t *rapid.T) rbacv1.PolicyRule {
		rule := rbacv1.PolicyRule{Verbs: some(verbs).Draw(t, "verbs")}
		if !namespaced && rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			rule.NonResourceURLs = some(paths).Draw(t, "paths")
			return rule
		}
		rule.APIGroups, rule.Resources = some(groups).Draw(t, "groups"), some(resources).Draw(t, "resources")
		if rapid.Bool().Draw(t, "named") {
			rule.ResourceNames = some(names).Draw(t, "names")
		}
		return rule
	})
}

func subjectGenerator() *rapid.Generator[rbacv1.Subject] {
	return rapid.Custom(func(t *rapid.T) rbacv1.Subject {
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: rapid.SampledFrom(users).Draw(t, "user")}
		case 1:
			return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: rapid.SampledFrom(append(userGroups, "system:serviceaccounts:rbac-one")).Draw(t, "group")}
		default:
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: rapid.SampledFrom(namespaces).Draw(t, "namespace"), Name: "robot"}
		}
	})
}

func requestGenerator() *rapid.Generator[authorizer.AttributesRecord] {
	return rapid.Custom(func(t *rapid.T) authorizer.AttributesRecord {
		a := authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: rapid.SampledFrom(users).Draw(t, "user"), Groups: rapid.SliceOfNDistinct(rapid.SampledFrom(append(userGroups, "system:serviceaccounts:rbac-one")), 0, 2, rapid.ID).Draw(t, "groups")},
			Verb: rapid.SampledFrom([]string{"get", "list", "create", "delete", "watch"}).Draw(t, "verb"),
		}
		if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
			a.Path = rapid.SampledFrom([]string{"/healthz", "/healthz/etcd", "/metrics", "/xyz", "/other"}).Draw(t, "path")
			return a
		}
		a.ResourceRequest = true
		a.Namespace = rapid.SampledFrom(append(namespaces, "", "rbac-three")).Draw(t, "namespace")
		a.APIGroup = rapid.SampledFrom([]string{"", "apps", "example.io", "other.io"}).Draw(t, "group")
		a.APIVersion = "v1"
		a.Resource = rapid.SampledFrom([]string{"pods", "deployments", "things"}).Draw(t, "resource")
		a.Subresource = rapid.SampledFrom([]string{"", "", "log", "scale"}).Draw(t, "subresource")
		a.Name = rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "name")
		return a
	})
}

// TestSameAsAPIServer compares the index with a real API server that has the same objects.
func TestSameAsAPIServer(t *testing.T) {
	hub := testenv.SharedAPIServer(t)
	client := hub.Client(t)
	factory := informers.NewSharedInformerFactory(client, 0)
	ours, err := rbac.NewAuthorizer(factory, nil)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	testenv.Eventually(t, "our authorizer has synced", func(context.Context) (bool, error) { return ours.HasSynced(), nil })
	for _, namespace := range namespaces {
		ensureNamespace(t, client, namespace)
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		if round > 12 { // each round costs some dozens of requests
			return
		}
		prefix := fmt.Sprintf("rbac-test-%d-", round)
		install(rt, t, client, prefix)
		defer remove(t, client, prefix)
		// When both know a last binding, they know all objects before it.
		waitUntilSeen(t, client, ours, prefix)
		for range 25 {
			a := requestGenerator().Draw(rt, "request")
			decision, _, err := ours.Authorize(t.Context(), a)
			if err != nil {
				rt.Fatal(err)
			}
			if got, want := decision == authorizer.DecisionAllow, review(t, client, a); got != want {
				rt.Errorf("%+v by %+v: got %v, the API server says %v", a, a.User, got, want)
			}
		}
	})
}

func ensureNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	namespace := rbacNamespace(name)
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil && !isExisting(err) {
		t.Fatal(err)
	}
}

func install(rt *rapid.T, t *testing.T, client kubernetes.Interface, prefix string) {
	for i := range 3 {
		name := fmt.Sprintf("%s%d", prefix, i)
		clusterRules := rapid.SliceOfN(ruleGenerator(false), 1, 3).Draw(rt, "rules of "+name)
		must(t, second(client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: clusterRules}, metav1.CreateOptions{})))
		namespace := namespaces[i%len(namespaces)]
		rules := rapid.SliceOfN(ruleGenerator(true), 1, 3).Draw(rt, "local rules of "+name)
		must(t, second(client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})))
		kind := rapid.SampledFrom([]string{"Role", "ClusterRole"}).Draw(rt, "reference of "+name)
		must(t, second(client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: rapid.SliceOfN(subjectGenerator(), 0, 2).Draw(rt, "local subjects of "+name),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		}, metav1.CreateOptions{})))
		if rapid.Bool().Draw(rt, "cluster binding of "+name) {
			must(t, second(client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: rapid.SliceOfN(subjectGenerator(), 0, 2).Draw(rt, "subjects of "+name),
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			}, metav1.CreateOptions{})))
		}
	}
}

func remove(t *testing.T, client kubernetes.Interface, prefix string) {
	for i := range 3 {
		name := fmt.Sprintf("%s%d", prefix, i)
		namespace := namespaces[i%len(namespaces)]
		for _, err := range []error{
			client.RbacV1().ClusterRoles().Delete(t.Context(), name, metav1.DeleteOptions{}),
			client.RbacV1().Roles(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
			client.RbacV1().RoleBindings(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
			client.RbacV1().ClusterRoleBindings().Delete(t.Context(), name, metav1.DeleteOptions{}),
		} {
			if err != nil && !isMissing(err) {
				t.Fatal(err)
			}
		}
	}
}

// waitUntilSeen binds a role of each kind to a marker user and waits until both sides allow it: each kind is watched in order.
func waitUntilSeen(t *testing.T, client kubernetes.Interface, ours *rbac.Authorizer, prefix string) {
	t.Helper()
	marker, rules := prefix+"marker", []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"marker.io"}, Resources: []string{"w"}}}
	subjects := func(of string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: marker + of}}
	}
	must(t, second(client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: marker}, Rules: rules}, metav1.CreateOptions{})))
	must(t, second(client.RbacV1().Roles(namespaces[0]).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: marker}, Rules: rules}, metav1.CreateOptions{})))
	must(t, second(client.RbacV1().RoleBindings(namespaces[0]).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: marker}, Subjects: subjects("-role"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: marker}}, metav1.CreateOptions{})))
	must(t, second(client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: marker}, Subjects: subjects("-cluster"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: marker}}, metav1.CreateOptions{})))
	t.Cleanup(func() {
		ctx := context.Background()
		_ = client.RbacV1().ClusterRoles().Delete(ctx, marker, metav1.DeleteOptions{})
		_ = client.RbacV1().Roles(namespaces[0]).Delete(ctx, marker, metav1.DeleteOptions{})
		_ = client.RbacV1().RoleBindings(namespaces[0]).Delete(ctx, marker, metav1.DeleteOptions{})
		_ = client.RbacV1().ClusterRoleBindings().Delete(ctx, marker, metav1.DeleteOptions{})
	})
	for _, of := range []string{"-role", "-cluster"} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: marker + of}, Verb: "get", APIGroup: "marker.io", Resource: "w", Namespace: namespaces[0], ResourceRequest: true}
		testenv.Eventually(t, "both know of the last binding", func(ctx context.Context) (bool, error) {
			decision, _, err := ours.Authorize(ctx, a)
			return decision == authorizer.DecisionAllow && review(t, client, a), err
		})
	}
}

// review asks the API server.
func review(t *testing.T, client kubernetes.Interface, a authorizer.AttributesRecord) bool {
	t.Helper()
	spec := authorizationv1.SubjectAccessReviewSpec{User: a.User.GetName(), Groups: slices.Clone(a.User.GetGroups())}
	if a.ResourceRequest {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: a.Namespace, Verb: a.Verb, Group: a.APIGroup, Version: a.APIVersion, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name,
		}
	} else {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
	}
	answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	must(t, err)
	return answer.Status.Allowed
}
