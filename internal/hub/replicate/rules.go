package replicate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1alpha1 "github.com/cellplane/cellplane/api/apps/v1alpha1"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

// Rule defines how the objects of one resource are copied.
type Rule struct {
	Resource schema.GroupVersionResource
	Kind     string
	// Namespaced is whether objects are in namespaces. Only is the one namespace that is copied; empty means all.
	Namespaced bool
	Only       string
	// Definition names the CustomResourceDefinition without which a cell does not serve the resource, if it needs one.
	Definition string
	// Part is what is copied besides labels and annotations.
	Part Part
	// Urgent objects overtake others: many objects may wait for them.
	Urgent bool
	// Lingers is whether the copy stays while its source is being deleted.
	Lingers bool
	// InPlace is whether the copy of a former object becomes that of a new one of the same name, with its content.
	InPlace bool

	// shared reports names that every control plane creates itself. They are adopted and never deleted. Nil means none.
	shared func(name string) bool
	// ignored reports names that only an API server itself may write. Nil means none.
	ignored func(name string) bool
	// adjust changes what is copied. Nil means that objects are copied as they are.
	adjust func(object map[string]any)
	// wanted reports whether a cell should have a copy. Nil means that all cells should.
	wanted func(h *hub, cell string, source *Source) bool
	// needs are the resources that wanted reads, besides this one.
	needs []schema.GroupVersionResource
	// affects returns the objects for which wanted depends on this one.
	affects func(h *hub, source *Source) []objectKey
}

// Part is a part of an object.
type Part int

const (
	// Content is everything but the status.
	Content Part = iota
	// ContentAndStatus is everything.
	ContentAndStatus
	// MetadataOnly is labels and annotations.
	MetadataOnly
)

// isNamespace and isDefinition report the kinds that others wait for.
func (r *Rule) isNamespace() bool  { return r.Resource == namespaces }
func (r *Rule) isDefinition() bool { return r.Resource == definitions }

func (r *Rule) shares(name string) bool { return r.shared != nil && r.shared(name) }

func (r *Rule) ignores(name string) bool { return r.ignored != nil && r.ignored(name) }

var (
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	secrets     = corev1.SchemeGroupVersion.WithResource("secrets")
	clusters    = clusterv1alpha1.GroupVersion.WithResource("clusters")
)

// Rules returns what is copied.
func Rules() []*Rule {
	policy, config, apps := policyv1alpha1.GroupVersion, configv1alpha1.GroupVersion, appsv1alpha1.GroupVersion
	own := cellplanev1alpha1.GroupVersion
	rules := []*Rule{
		{Resource: namespaces, Kind: "Namespace", Part: MetadataOnly, Urgent: true, InPlace: true, shared: isSystemNamespace},
		{Resource: definitions, Kind: "CustomResourceDefinition", Urgent: true, InPlace: true, shared: isOwnDefinition},
		{Resource: corev1.SchemeGroupVersion.WithResource("resourcequotas"), Kind: "ResourceQuota", Namespaced: true},
		{Resource: secrets, Kind: "Secret", Namespaced: true, Only: names.ClusterNamespace, wanted: wantsSecret,
			needs: []schema.GroupVersionResource{clusters}, affects: sharedSecretOfCluster},
		{Resource: schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}, Kind: "PriorityClass", ignored: isSystemClass},

		custom(Rule{Resource: clusters, Kind: "Cluster", Part: ContentAndStatus, Lingers: true, affects: secretOfCluster}),
		custom(Rule{Resource: policy.WithResource("propagationpolicies"), Kind: "PropagationPolicy", Namespaced: true, wanted: hasLabel(names.PropagationPolicyPermanentIDLabel)}),
		custom(Rule{Resource: policy.WithResource("clusterpropagationpolicies"), Kind: "ClusterPropagationPolicy", wanted: hasLabel(names.ClusterPropagationPolicyPermanentIDLabel)}),
		custom(Rule{Resource: policy.WithResource("overridepolicies"), Kind: "OverridePolicy", Namespaced: true}),
		custom(Rule{Resource: policy.WithResource("clusteroverridepolicies"), Kind: "ClusterOverridePolicy"}),
		custom(Rule{Resource: policy.WithResource("federatedresourcequotas"), Kind: "FederatedResourceQuota", Namespaced: true, Part: ContentAndStatus}),
		custom(Rule{Resource: policy.WithResource("clustertaintpolicies"), Kind: "ClusterTaintPolicy"}),
		custom(Rule{Resource: config.WithResource("resourceinterpretercustomizations"), Kind: "ResourceInterpreterCustomization"}),
		custom(Rule{Resource: config.WithResource("resourceinterpreterwebhookconfigurations"), Kind: "ResourceInterpreterWebhookConfiguration"}),
		custom(Rule{Resource: apps.WithResource("workloadrebalancers"), Kind: "WorkloadRebalancer"}),
		custom(Rule{Resource: own.WithResource("rolloutpolicies"), Kind: "RolloutPolicy", Namespaced: true}),
		custom(Rule{Resource: own.WithResource("clusterrolloutpolicies"), Kind: "ClusterRolloutPolicy"}),
		custom(Rule{Resource: own.WithResource("clusterprofiles"), Kind: "ClusterProfile"}),
		custom(Rule{Resource: own.WithResource("schedulingprofiles"), Kind: "SchedulingProfile"}),
		custom(Rule{Resource: own.WithResource("admissionparameters"), Kind: "AdmissionParameter", Urgent: true, ignored: userpolicy.Reserved}),
	}
	for _, kind := range userpolicy.Kinds() {
		rules = append(rules, userPolicy(kind))
	}
	return rules
}

// userPolicy copies the admission policies and webhooks of users, limited to their requests. Those that cannot be enforced in a cell are left
// out: gateways refuse them. The control plane's own are different on the hub and in the cells.
func userPolicy(kind userpolicy.Kind) *Rule {
	return &Rule{
		Resource: kind.Resource, Kind: kind.Kind, Urgent: true,
		ignored: userpolicy.Reserved,
		adjust:  func(object map[string]any) { kind.Limit(object) },
		wanted:  func(_ *hub, _ string, source *Source) bool { return kind.Check(source.Name, source.Body) == nil },
	}
}

func custom(rule Rule) *Rule {
	rule.Definition = rule.Resource.Resource + "." + rule.Resource.Group
	return &rule
}

// isSystemNamespace reports the namespaces that an API server creates when it starts.
func isSystemNamespace(name string) bool {
	switch name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
		return true
	}
	return false
}

var ownDefinitions = func() sets.Set[string] {
	all := sets.New[string]()
	for _, definition := range crds.All() {
		all.Insert(definition.Name)
	}
	return all
}()

// isOwnDefinition reports the definitions of our API. Deleting one would delete all of its objects in the cell.
func isOwnDefinition(name string) bool { return ownDefinitions.Has(name) }

// isSystemClass reports the priority classes with the reserved prefix.
func isSystemClass(name string) bool { return strings.HasPrefix(name, "system-") }

// hasLabel delays objects until they have a label: engines identify a policy by its permanent ID from the start.
func hasLabel(label string) func(*hub, string, *Source) bool {
	return func(_ *hub, _ string, source *Source) bool { return source.Labels[label] != "" }
}

// wantsSecret limits a cell to the credentials that its engine uses: those issued to it, and those of a cluster that has
// issued none to this cell. The tokens of impersonators stay on the hub.
func wantsSecret(h *hub, cell string, secret *Source) bool {
	if recipient := secret.Labels[names.CellLabel]; recipient != "" {
		return recipient == cell
	}
	for _, cluster := range h.referring(secret) {
		if !h.hasOwnSecret(cluster.Name, cell) {
			return true
		}
	}
	return false
}

// secretOfCluster returns the secret that a cluster refers to.
func secretOfCluster(h *hub, cluster *Source) []objectKey {
	if namespace, name, ok := secretRef(cluster); ok && namespace == names.ClusterNamespace {
		return []objectKey{{kind: h.number(secrets), namespace: namespace, name: name}}
	}
	return nil
}

// sharedSecretOfCluster returns the secret that a cell would use without this one.
func sharedSecretOfCluster(h *hub, secret *Source) []objectKey {
	if secret.Labels[names.CellLabel] == "" {
		return nil
	}
	if cluster := h.kind(clusters).get("", secret.Labels[names.ClusterLabel]); cluster != nil {
		return secretOfCluster(h, cluster)
	}
	return nil
}
