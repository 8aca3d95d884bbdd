package adopt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

const sharedNamespace = "shared"

// sharedFlags select what the test adopts.
var sharedFlags = []string{"-n", sharedNamespace, "-l", "app=shared", "--resource", "clusterroles,priorityclasses,sites.example.com"}

// sharedKind is a kind of which the test has one object. Field is one that people change.
type sharedKind struct {
	schema.GroupVersionKind
	namespace, name string
	field           []string
}

var (
	sharedClass      = sharedKind{schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), "", "shared-class", []string{"description"}}
	sharedRole       = sharedKind{rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "", "shared-role", []string{"rules"}}
	sharedSite       = sharedKind{schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Site"}, "", "shared-site", []string{"spec", "zone"}}
	sharedDeployment = sharedKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), sharedNamespace, "web", []string{"metadata", "annotations", "example.com/text"}}
	clusterScoped    = []sharedKind{sharedClass, sharedRole, sharedSite}
)

// String names the object as commands do.
func (k *sharedKind) String() string {
	if k.namespace == "" {
		return k.Kind + " " + k.name
	}
	return k.Kind + " " + k.namespace + "/" + k.name
}

func (k *sharedKind) ref() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(k.GroupVersionKind)
	obj.SetNamespace(k.namespace)
	obj.SetName(k.name)
	return obj
}

// object returns the object as it is before adoption.
func (k *sharedKind) object(text string) *unstructured.Unstructured {
	obj := k.ref()
	obj.SetLabels(map[string]string{"app": "shared"})
	if k.Kind == "PriorityClass" {
		obj.Object["value"] = int64(1000)
	}
	k.set(obj, text)
	return obj
}

func (k *sharedKind) set(obj *unstructured.Unstructured, text string) {
	var value any = text
	if k.Kind == "ClusterRole" {
		value = []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{text}}}
	}
	if err := unstructured.SetNestedField(obj.Object, value, k.field...); err != nil {
		panic(err) // the field is one of the kind
	}
}

func (k *sharedKind) text(obj *unstructured.Unstructured) string {
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, k.field...)
	if rules, isRole := value.([]any); isRole {
		verbs, _, _ := unstructured.NestedStringSlice(rules[0].(map[string]any), "verbs")
		return strings.Join(verbs, ",")
	}
	return fmt.Sprint(value)
}

// shared is the state of the test.
type shared struct {
	*world
	// cluster is where people write, and others are the other members.
	cluster string
	others  []string
}

// Cluster-scoped objects, and a Deployment that differs, come under the federation. In one member the objects are taken out of its hands, by the command and by kubectl
// alone: what people change there stays, and is kept for the cluster, for all clusters, or not at all. Then the member is released alone, and at last all are.
func testShared(w *world) {
	s := &shared{world: w, cluster: w.memberNames[0], others: w.memberNames[1:]}
	s.create()
	s.must("adopted", "adopt", "apply")
	s.takenOut()
	s.given()
	s.releasedAlone()
	s.leavesNoTrace()
}

// must runs a command on all objects, each of which it must say the word of.
func (s *shared) must(word string, command ...string) {
	s.Helper()
	output := s.run(append(command, sharedFlags...)...)
	for _, k := range append(slices.Clone(clusterScoped), sharedDeployment) {
		if !strings.Contains(output, k.String()+": "+word+"\n") {
			s.Fatalf("%v does not say that %s is %s:\n%s", command, &k, word, output)
		}
	}
}

// defineSites creates the cluster-scoped custom kind everywhere.
func (w *world) defineSites() {
	w.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "sites.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.ClusterScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "sites", Singular: "site", Kind: "Site", ListKind: "SiteList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
		}},
	}}
	for _, c := range slices.Concat([]client.WithWatch{w.federation}, slices.Collect(maps.Values(w.members))) {
		if err := c.Create(w.Context(), definition.DeepCopy()); err != nil {
			w.Fatal(err)
		}
	}
}

func (s *shared) create() {
	s.Helper()
	for _, cluster := range s.memberNames {
		testenv.Eventually(s.T, cluster+" reports the kind", func(ctx context.Context) (bool, error) {
			c := &clusterv1alpha1.Cluster{}
			err := s.federation.Get(ctx, client.ObjectKey{Name: cluster}, c)
			return slices.ContainsFunc(c.Status.APIEnablements, func(a clusterv1alpha1.APIEnablement) bool {
				return a.GroupVersion == sharedSite.GroupVersion().String()
			}), err
		})
	}
	for position, cluster := range s.memberNames {
		labels := map[string]string{"app": "web"}
		web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: sharedNamespace, Name: "web", Labels: map[string]string{"app": "shared"}}, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1 + position)), Selector: &metav1.LabelSelector{MatchLabels: labels}, //nolint:gosec // it is small
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/" + cluster + ":1"}}}},
		}}
		for _, obj := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sharedNamespace}}, web} {
			if err := s.members[cluster].Create(s.Context(), obj, client.FieldOwner("kubectl-create")); err != nil {
				s.Fatal(err)
			}
		}
		for _, k := range clusterScoped {
			if err := s.members[cluster].Create(s.Context(), k.object("1"), client.FieldOwner("kubectl-create")); err != nil {
				s.Fatal(err)
			}
		}
	}
	for position, cluster := range s.memberNames {
		testenv.Eventually(s.T, "it runs in "+cluster, func(ctx context.Context) (bool, error) {
			web := &appsv1.Deployment{}
			err := s.members[cluster].Get(ctx, client.ObjectKey{Namespace: sharedNamespace, Name: "web"}, web)
			return int(web.Status.ReadyReplicas) == 1+position && web.Status.ObservedGeneration == web.Generation, err
		})
	}
}

func (s *shared) read(from client.Client, k *sharedKind) *unstructured.Unstructured {
	s.Helper()
	obj := k.ref()
	if err := from.Get(s.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		s.Fatalf("reading %s: %v", k, err)
	}
	return obj
}

// write changes an object as a program does.
func (s *shared) write(to client.Client, program string, k *sharedKind, change func(*unstructured.Unstructured)) {
	s.Helper()
	testenv.Eventually(s.T, k.String()+" is changed", func(ctx context.Context) (bool, error) {
		obj := k.ref()
		if err := to.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		change(obj)
		err := to.Update(ctx, obj, client.FieldOwner(program))
		return err == nil, err
	})
}

func (k *sharedKind) to(text string) func(*unstructured.Unstructured) {
	return func(obj *unstructured.Unstructured) { k.set(obj, text) }
}

// has waits until an object in a member has a text.
func (s *shared) has(cluster string, k *sharedKind, text string) {
	s.Helper()
	testenv.Eventually(s.T, fmt.Sprintf("%s in %s is %q", k, cluster, text), func(ctx context.Context) (bool, error) {
		obj := k.ref()
		err := s.members[cluster].Get(ctx, client.ObjectKeyFromObject(obj), obj)
		return err == nil && k.text(obj) == text, errors.Join(err, errors.New(k.text(obj)))
	})
}

func (s *shared) work(k *sharedKind) *workv1alpha1.Work {
	return &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(s.cluster), Name: names.WorkName(k.Kind, k.namespace, k.name)}}
}

// takenOut opens the entries, and changes the objects both in the member and in the federation.
func (s *shared) takenOut() {
	s.Helper()
	s.run("entry", "open", "priorityclass/shared-class", "--cluster", s.cluster, "--for", "1h", "--reason", "repair")
	s.run("entry", "open", "sites.example.com/shared-site", "-n", "elsewhere", "--cluster", s.cluster)
	s.write(s.members[s.cluster], "kubectl-annotate", &sharedRole, func(obj *unstructured.Unstructured) {
		annotations := obj.GetAnnotations()
		annotations[names.EntryAnnotation] = ""
		obj.SetAnnotations(annotations)
	})
	for _, k := range clusterScoped {
		s.write(s.members[s.cluster], "kubectl-edit", &k, k.to("repaired"))
		s.write(s.federation, "kubectl-edit", &k, k.to("2"))
	}
	for _, k := range clusterScoped {
		work := s.work(&k)
		testenv.Eventually(s.T, "the engine holds back "+k.String(), func(ctx context.Context) (bool, error) {
			if err := s.federation.Get(ctx, client.ObjectKeyFromObject(work), work); err != nil {
				return false, err
			}
			applied := meta.FindStatusCondition(work.Status.Conditions, names.WorkApplied)
			return applied != nil && applied.Reason == names.ReasonEntryOpen && meta.IsStatusConditionTrue(work.Status.Conditions, names.EntryOpen) &&
				len(work.Spec.Workload.Manifests) == 1 && strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), `"2"`), fmt.Errorf("its conditions are %+v", work.Status.Conditions)
		})
		testenv.Eventually(s.T, "the binding tells", func(ctx context.Context) (bool, error) {
			binding := &workv1alpha2.ClusterResourceBinding{}
			err := s.federation.Get(ctx, client.ObjectKey{Name: names.BindingName(k.Kind, k.name)}, binding)
			told := meta.FindStatusCondition(binding.Status.Conditions, names.EntryOpen)
			return err == nil && told != nil && strings.Contains(told.Message, k.String()+" in cluster "+s.cluster+" is open"), errors.Join(err, fmt.Errorf("its conditions are %+v", binding.Status.Conditions))
		})
		for _, other := range s.others {
			s.has(other, &k, "2")
		}
		if text := k.text(s.read(s.members[s.cluster], &k)); text != "repaired" {
			s.Errorf("%s in %s is %q", &k, s.cluster, text)
		}
	}
	list := s.run("entry", "list")
	for _, want := range []string{"PriorityClass shared-class", "ClusterRole shared-role", "Site shared-site", "repair"} {
		if !strings.Contains(list, want) {
			s.Errorf("entry list does not have %q:\n%s", want, list)
		}
	}
	if list := s.run("entry", "list", "-n", sharedNamespace); strings.Contains(list, "shared-") {
		s.Errorf("entry list of a namespace has cluster-scoped objects:\n%s", list)
	}
}

// given closes the entries.
func (s *shared) given() {
	s.Helper()
	closing := func(object string, flags ...string) (string, int) {
		return s.try(append([]string{"entry", "close", object, "--cluster", s.cluster}, flags...)...)
	}
	for _, text := range []string{"repaired", "repaired again"} { // the second is added to the override
		if text != "repaired" {
			s.run("entry", "open", "priorityclass/shared-class", "--cluster", s.cluster)
			s.write(s.members[s.cluster], "kubectl-edit", &sharedClass, sharedClass.to(text))
		}
		if output, code := closing("priorityclass/shared-class", "--keep"); code != 0 || !strings.Contains(output, "ClusterOverridePolicy shared-class-priorityclass-"+s.cluster+" keeps description.\n") {
			s.Fatalf("entry close --keep ends with exit code %d:\n%s", code, output)
		}
		s.has(s.cluster, &sharedClass, text)
	}
	if output, code := closing("clusterrole/shared-role", "--keep"); code != 1 || !strings.Contains(output, "rules is part of what ClusterRole shared-role grants") {
		s.Errorf("entry close --keep of a ClusterRole ends with exit code %d:\n%s", code, output)
	}
	if output, code := closing("clusterrole/shared-role", "--keep", "--into", "template"); code != 0 {
		s.Fatalf("entry close --keep --into template ends with exit code %d:\n%s", code, output)
	}
	if output, code := closing("sites.example.com/shared-site", "--discard"); code != 0 {
		s.Fatalf("entry close --discard ends with exit code %d:\n%s", code, output)
	}
	s.has(s.cluster, &sharedSite, "2")
	for _, other := range s.others {
		s.has(other, &sharedRole, "repaired")
		s.has(other, &sharedClass, "2")
	}
	if list := s.run("entry", "list"); strings.Contains(list, "shared-") {
		s.Errorf("entries are still open:\n%s", list)
	}
}

// plain returns what users see of an object of a member.
func (s *shared) plain(cluster string, k *sharedKind) map[string]any {
	s.Helper()
	obj := s.read(s.members[cluster], k)
	delete(obj.Object, "status")
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	return obj.Object
}

// unmarked returns the same without the marks of the federation.
func (s *shared) unmarked(cluster string, k *sharedKind) map[string]any {
	s.Helper()
	obj := &unstructured.Unstructured{Object: s.plain(cluster, k)}
	for field, entries := range map[string]map[string]string{"labels": obj.GetLabels(), "annotations": obj.GetAnnotations()} {
		for key := range entries {
			if names.IsMark(key) {
				unstructured.RemoveNestedField(obj.Object, "metadata", field, key)
			}
		}
		if left, _, _ := unstructured.NestedMap(obj.Object, "metadata", field); len(left) == 0 {
			unstructured.RemoveNestedField(obj.Object, "metadata", field)
		}
	}
	return obj.Object
}

// isFree checks that an object of a member is as before, has no mark of the federation and no Work.
func (s *shared) isFree(cluster string, k *sharedKind, before map[string]any) {
	s.Helper()
	if diff := cmp.Diff(before, s.plain(cluster, k)); diff != "" {
		s.Errorf("%s in %s is not as before (-before +now):\n%s", k, cluster, diff)
	}
	text, err := s.read(s.members[cluster], k).MarshalJSON()
	if err != nil || strings.Contains(string(text), "karmada.io") || strings.Contains(string(text), "cellplane") {
		s.Errorf("%s in %s has marks of the federation: %v\n%s", k, cluster, err, text)
	}
	work := s.work(k)
	work.Namespace = names.ExecutionNamespace(cluster)
	if err := s.federation.Get(s.Context(), client.ObjectKeyFromObject(work), work); !apierrors.IsNotFound(err) {
		s.Errorf("%s still has a Work for %s: %v", k, cluster, err)
	}
}

// pods returns the pods of the Deployment in a member.
func (s *shared) pods(cluster string) (uids []string) {
	s.Helper()
	var pods corev1.PodList
	if err := s.members[cluster].List(s.Context(), &pods, client.InNamespace(sharedNamespace)); err != nil {
		s.Fatal(err)
	}
	for i := range pods.Items {
		uids = append(uids, string(pods.Items[i].UID))
	}
	slices.Sort(uids)
	return uids
}

// releasedAlone releases the member: what runs there goes on without the federation, which has the others as before. What changes later does not reach it.
func (s *shared) releasedAlone() {
	s.Helper()
	all := append(slices.Clone(clusterScoped), sharedDeployment)
	before, pods := map[string]map[string]any{}, s.pods(s.cluster)
	for _, k := range all {
		before[k.String()] = s.unmarked(s.cluster, &k)
	}
	s.must("released in cluster "+s.cluster, "adopt", "release", "--cluster", s.cluster)
	s.must("released in cluster "+s.cluster, "adopt", "release", "--cluster", s.cluster) // it can be repeated
	for _, k := range all {
		s.isFree(s.cluster, &k, before[k.String()])
		for _, other := range s.others {
			if s.read(s.members[other], &k).GetLabels()[names.ManagedLabel] != names.ManagedValue {
				s.Errorf("%s is not managed in %s any more", &k, other)
			}
		}
		s.write(s.federation, "kubectl-edit", &k, k.to("3"))
		for _, other := range s.others {
			s.has(other, &k, "3")
		}
		s.isFree(s.cluster, &k, before[k.String()])
	}
	if now := s.pods(s.cluster); !slices.Equal(now, pods) {
		s.Errorf("%s had the pods %v and has %v", s.cluster, pods, now)
	}
	policy := &policyv1alpha1.ClusterPropagationPolicy{}
	if err := s.federation.Get(s.Context(), client.ObjectKey{Name: "shared-class-priorityclass"}, policy); err != nil {
		s.Fatal(err)
	}
	if placed := policy.Spec.Placement.ClusterAffinity.ClusterNames; !slices.Equal(placed, s.others) || policy.Spec.Suspension != nil || policy.Annotations[names.ReleaseAnnotation] != "" {
		s.Errorf("the policy places it in %v: %+v", placed, policy)
	}
	override := &policyv1alpha1.ClusterOverridePolicy{}
	if err := s.federation.Get(s.Context(), client.ObjectKey{Name: "shared-class-priorityclass-" + s.cluster}, override); !apierrors.IsNotFound(err) {
		s.Errorf("what the cluster kept is still in the override: %v %+v", err, override.Spec)
	}
}

// leavesNoTrace releases the others, adopts all again, and releases all.
func (s *shared) leavesNoTrace() {
	s.Helper()
	if output, code := s.try(append([]string{"adopt", "apply"}, sharedFlags...)...); code != 2 || !strings.Contains(output, "but not in every cluster") {
		s.Errorf("adopt apply of what is managed elsewhere ends with exit code %d:\n%s", code, output)
	}
	s.must("released", "adopt", "release")
	for _, k := range clusterScoped {
		s.write(s.members[s.cluster], "kubectl-edit", &k, k.to("3")) // only what is the same everywhere can be adopted
	}
	all := append(slices.Clone(clusterScoped), sharedDeployment)
	before, pods := map[string]map[string]any{}, map[string][]string{}
	for _, cluster := range s.memberNames {
		pods[cluster] = s.pods(cluster)
		for _, k := range all {
			before[cluster+k.String()] = s.plain(cluster, &k)
		}
	}
	s.must("adopted", "adopt", "apply")
	s.must("released", "adopt", "release")
	for _, cluster := range s.memberNames {
		for _, k := range all {
			s.isFree(cluster, &k, before[cluster+k.String()])
		}
		if now := s.pods(cluster); !slices.Equal(now, pods[cluster]) {
			s.Errorf("%s had the pods %v and has %v", cluster, pods[cluster], now)
		}
	}
	testenv.Eventually(s.T, "no policy of theirs is left", func(context.Context) (bool, error) {
		left := s.run("kubectl", "get", "clusterpropagationpolicies,clusteroverridepolicies,clusterresourcebindings", "-o", "name")
		return !strings.Contains(left, "shared-"), errors.New(left)
	})
}
