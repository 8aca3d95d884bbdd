package agentcertificates

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/identity"
)

// Reasons in the conditions of requests.
const (
	// ReasonRegistered is that of a request by which a cluster registers.
	ReasonRegistered = "ClusterRegistered"
	// ReasonRenewed is that of an agent's next certificate.
	ReasonRenewed = "AgentRenewed"
	// ReasonNotAgent means that a request is not for the certificate of an agent.
	ReasonNotAgent = "NotTheCertificateOfAnAgent"
	// ReasonOtherAgent means that an agent asks for the certificate of another.
	ReasonOtherAgent = "AnotherAgent"
	// ReasonClusterExists means that a bootstrap token asks for the certificate of a cluster that exists.
	ReasonClusterExists = "ClusterExists"
	// ReasonNoCluster means that the cluster of an agent does not exist.
	ReasonNoCluster = "NoSuchCluster"
	// ReasonInvalidCluster means that the cluster cannot be created as it describes itself.
	ReasonInvalidCluster = "InvalidCluster"
)

// Controller approves and denies requests.
type Controller struct {
	client client.Client
	// live reads without a cache: a decision must not be made by an old state.
	live client.Reader
}

// Add registers the controller with a manager. It also grants the rights that registration needs.
func Add(mgr manager.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return grantUntilDone(ctx, mgr.GetConfig()) })); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named("agent-certificates").
		For(&certificatesv1.CertificateSigningRequest{}).
		Complete(&Controller{client: mgr.GetClient(), live: mgr.GetAPIReader()})
}

// refusal is why a request is denied.
type refusal struct{ reason, message string }

// Reconcile decides about one request.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.client.Get(ctx, request.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(csr.Status.Conditions) > 0 {
		return reconcile.Result{}, c.afterApproval(ctx, csr)
	}
	by := requesterOf(&csr.Spec)
	if by == somebody {
		return reconcile.Result{}, nil
	}
	asked, err := check(&csr.Spec, csr.Annotations, time.Now())
	if err != nil {
		return reconcile.Result{}, c.deny(ctx, csr, refusal{ReasonNotAgent, err.Error()})
	}
	var refused *refusal
	if by == token {
		refused, err = c.register(ctx, asked)
	} else {
		refused, err = c.renew(ctx, csr.Spec.Username, asked)
	}
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case refused != nil:
		return reconcile.Result{}, c.deny(ctx, csr, *refused)
	case by == token:
		return reconcile.Result{}, c.approve(ctx, csr, ReasonRegistered, fmt.Sprintf("cluster %s has registered with a bootstrap token", asked.cluster))
	}
	return reconcile.Result{}, c.approve(ctx, csr, ReasonRenewed, fmt.Sprintf("the agent of cluster %s renews its certificate", asked.cluster))
}

// register decides about the request of a bootstrap token.
func (c *Controller) register(ctx context.Context, asked *wanted) (*refusal, error) {
	cluster, err := c.cluster(ctx, asked.cluster)
	switch {
	case err != nil:
		return nil, err
	case cluster == nil:
		return c.create(ctx, asked)
	case !identity.HasKey(cluster.Annotations[names.AgentKeysAnnotation], asked.key.Sum):
		return &refusal{ReasonClusterExists, fmt.Sprintf("a cluster %s exists already; choose another name, or let an administrator remove that cluster first", asked.cluster)}, nil
	}
	return nil, nil // it has registered before, with the same key
}

// renew decides about the request of an agent.
func (c *Controller) renew(ctx context.Context, user string, asked *wanted) (*refusal, error) {
	if user != names.AgentUser(asked.cluster) {
		return &refusal{ReasonOtherAgent, fmt.Sprintf("%s may not have the certificate of the agent of cluster %s", user, asked.cluster)}, nil
	}
	cluster, err := c.cluster(ctx, asked.cluster)
	if err != nil {
		return nil, err
	}
	if cluster == nil {
		return &refusal{ReasonNoCluster, fmt.Sprintf("there is no cluster %s any more", asked.cluster)}, nil
	}
	return nil, c.addKey(ctx, cluster, asked.key)
}

// afterApproval makes the key of a request known that an administrator has approved, if its cluster existed at that time.
func (c *Controller) afterApproval(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	for _, condition := range csr.Status.Conditions {
		if condition.Type != certificatesv1.CertificateApproved || condition.Reason == ReasonRegistered || condition.Reason == ReasonRenewed {
			continue
		}
		asked, err := check(&csr.Spec, csr.Annotations, condition.LastUpdateTime.Time)
		if err != nil {
			return nil // it is not for an agent
		}
		cluster, err := c.cluster(ctx, asked.cluster)
		if err != nil || cluster == nil || condition.LastUpdateTime.Before(&cluster.CreationTimestamp) {
			return err
		}
		return c.addKey(ctx, cluster, asked.key)
	}
	return nil
}

// cluster returns a Cluster, nil if there is none.
func (c *Controller) cluster(ctx context.Context, name string) (*clusterv1alpha1.Cluster, error) {
	cluster := &clusterv1alpha1.Cluster{}
	err := c.live.Get(ctx, client.ObjectKey{Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", name, err)
	}
	return cluster, nil
}

// addKey adds a key to a Cluster. A conflict is retried: another key may have been added.
func (c *Controller) addKey(ctx context.Context, cluster *clusterv1alpha1.Cluster, key identity.Key) error {
	former := cluster.Annotations[names.AgentKeysAnnotation]
	if identity.HasKey(former, key.Sum) {
		return nil
	}
	before := cluster.DeepCopy()
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, names.AgentKeysAnnotation, identity.AddKey(former, key, time.Now()))
	if err := c.client.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding a key of its agent to cluster %s: %w", cluster.Name, err)
	}
	return nil
}

// create creates the Cluster of a cluster that registers.
func (c *Controller) create(ctx context.Context, asked *wanted) (*refusal, error) {
	if asked.about.ID == "" {
		return &refusal{ReasonInvalidCluster, "the request does not tell the ID of the cluster"}, nil
	}
	all := &clusterv1alpha1.ClusterList{}
	if err := c.live.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	for i := range all.Items {
		if all.Items[i].Spec.ID == asked.about.ID {
			return &refusal{ReasonClusterExists, fmt.Sprintf("this cluster is already a member, called %s; a cluster can join only once", all.Items[i].Name)}, nil
		}
	}
	cluster := &clusterv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        asked.cluster,
			Annotations: map[string]string{names.AgentKeysAnnotation: identity.AddKey("", asked.key, time.Now())},
		},
		Spec: clusterv1alpha1.ClusterSpec{
			ID: asked.about.ID, SyncMode: clusterv1alpha1.Pull,
			Provider: asked.about.Provider, Region: asked.about.Region, Zones: asked.about.Zones,
		},
	}
	err := c.client.Create(ctx, cluster)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return &refusal{ReasonInvalidCluster, err.Error()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("creating cluster %s: %w", asked.cluster, err) // if somebody was faster, the next attempt sees that
	}
	return nil, nil
}

func (c *Controller) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, reason, message string) error {
	return c.decide(ctx, csr, certificatesv1.CertificateApproved, reason, message)
}

func (c *Controller) deny(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, why refusal) error {
	return c.decide(ctx, csr, certificatesv1.CertificateDenied, why.reason, why.message)
}

func (c *Controller) decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, what certificatesv1.RequestConditionType, reason, message string) error {
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: what, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: metav1.Now(),
	})
	if err := c.client.SubResource("approval").Update(ctx, csr); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deciding about CertificateSigningRequest %s: %w", csr.Name, err)
	}
	return nil
}
