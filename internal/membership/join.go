package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Options configure Join.
type Options struct {
	// Hub is an administrator's configuration for the hub.
	Hub *rest.Config
	// Member is an administrator's configuration for the cluster. It is used during the call and not stored.
	Member *rest.Config
	// Name is the name of the cluster in the federation.
	Name string
	// Cells are those whose engines get an identity, besides the hub's own; nil means all.
	Cells []string

	// Provider, Region and Zones are where the cluster is. Empty ones are left unchanged.
	Provider string
	Region   string
	Zones    []string
	// Labels are added to the Cluster.
	Labels map[string]string

	// APIEndpoint is the cluster's address for the control plane; empty means that of Member.
	APIEndpoint string
	// ProxyURL and ProxyHeader are the control plane's proxy to the cluster; empty means that of Member.
	ProxyURL    string
	ProxyHeader map[string]string
}

// Join joins a cluster to the federation. It is idempotent: repeat it to repair or continue a join, or to change options.
func Join(ctx context.Context, options Options) (*clusterv1alpha1.Cluster, error) {
	j, err := options.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := j.refuse(ctx); err != nil {
		return nil, err
	}
	if err := j.member.prepare(ctx); err != nil {
		return nil, err
	}
	existing, err := j.hub.cluster(ctx, j.Name)
	if err != nil {
		return nil, err
	}
	published, err := j.makeIdentities(ctx, existing)
	if err != nil {
		return nil, err
	}
	cluster, err := j.writeCluster(ctx)
	if err != nil {
		return nil, err
	}
	if existing != nil && existing.UID == cluster.UID {
		return cluster, nil
	}
	// Now that the Cluster has a UID, it can own its Secrets.
	for i, data := range published {
		if err := j.hub.publish(ctx, i, data, cluster); err != nil {
			return nil, err
		}
	}
	return cluster, nil
}

// joining is a join in progress.
type joining struct {
	Options
	hub    *hub
	member *member
	id     string
	ca     []byte
	// elsewhere is whether the control plane uses another address or proxy than we do.
	elsewhere bool
}

func (o Options) open(ctx context.Context) (*joining, error) {
	if err := ValidateName(o.Name); err != nil {
		return nil, err
	}
	j := &joining{Options: o}
	var err error
	if j.hub, err = openHub(ctx, o.Hub); err != nil {
		return nil, err
	}
	if j.member, err = newMember(o.Member, o.Name, j.hub.federation); err != nil {
		return nil, err
	}
	if j.id, err = uid(ctx, j.member.client); err != nil {
		return nil, fmt.Errorf("reading the ID of cluster %s: %w", o.Name, err)
	}
	if j.Cells == nil {
		if j.Cells, err = j.hub.cellNames(ctx); err != nil {
			return nil, err
		}
	}
	for _, cell := range j.Cells {
		if err := validateCell(cell); err != nil {
			return nil, err
		}
	}
	return j, j.describeEndpoint()
}

// describeEndpoint derives the control plane's connection to the member from ours.
func (j *joining) describeEndpoint() error {
	config := rest.CopyConfig(j.Member)
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("reading the certificates of cluster %s: %w", j.Name, err)
	}
	if !config.Insecure {
		j.ca = config.CAData
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("reading the address of cluster %s: %w", j.Name, err)
	}
	j.elsewhere = j.APIEndpoint != "" || j.ProxyURL != ""
	if j.APIEndpoint == "" {
		j.APIEndpoint = server.String()
	}
	if j.ProxyURL == "" && config.Proxy != nil {
		proxy, err := config.Proxy(&http.Request{URL: server})
		if err != nil {
			return fmt.Errorf("reading the proxy of cluster %s: %w", j.Name, err)
		}
		if proxy != nil {
			j.ProxyURL = proxy.String()
		}
	}
	return nil
}

func (j *joining) refuse(ctx context.Context) error {
	if j.id == j.hub.federation {
		return errors.New("the hub cannot be a member of its own federation")
	}
	if err := j.hub.refuseDuplicate(ctx, j.Name, j.id); err != nil {
		return err
	}
	if err := j.member.refuseForeign(ctx); err != nil {
		return err
	}
	// Refuse what the control plane could not use before anything is written.
	_, err := fleet.MemberConfig(j.describe(&clusterv1alpha1.Cluster{}), &corev1.Secret{Data: j.data([]byte("none yet"))})
	return err
}

// makeIdentities creates all identities and publishes their credentials. The Cluster owns them if it exists already.
func (j *joining) makeIdentities(ctx context.Context, owner *clusterv1alpha1.Cluster) (map[identity]map[string][]byte, error) {
	if err := j.hub.ensureNamespace(ctx); err != nil {
		return nil, err
	}
	published := map[identity]map[string][]byte{}
	for _, i := range identities(j.Name, j.Cells) {
		made, err := j.member.ensure(ctx, i)
		if err != nil {
			return nil, err
		}
		published[i] = j.data(made.token)
		if i.role == statusRole {
			if err := j.verify(ctx, published[i]); err != nil {
				return nil, err
			}
		}
		if err := j.hub.publish(ctx, i, published[i], owner); err != nil {
			return nil, err
		}
	}
	return published, nil
}

func (j *joining) data(token []byte) map[string][]byte { return secretData(token, j.ca) }

func secretData(token, ca []byte) map[string][]byte {
	data := map[string][]byte{fleet.MemberTokenKey: token}
	if len(ca) > 0 {
		data[fleet.MemberCAKey] = ca
	}
	return data
}

// verifyTimeout bounds how long a member may take to accept a new identity.
const verifyTimeout = 15 * time.Second

// verify tests the control plane's access to the member. It skips an endpoint or proxy that differs from ours, which may work
// from the control plane only.
func (j *joining) verify(ctx context.Context, data map[string][]byte) error {
	if j.elsewhere {
		return nil
	}
	cluster := j.describe(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: j.Name}})
	config, err := fleet.MemberConfig(cluster, &corev1.Secret{Data: data})
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, verifyTimeout, true, func(context.Context) (bool, error) {
		_, last = client.ServerVersion()
		if apierrors.IsUnauthorized(last) || apierrors.IsForbidden(last) {
			return false, nil
		}
		return true, last
	})
	if err != nil {
		return fmt.Errorf("cluster %s does not accept the federation's credentials at %s: %w", j.Name, j.APIEndpoint, errors.Join(last, ctx.Err()))
	}
	return nil
}

// describe applies the options to a Cluster, and leaves the rest unchanged.
func (j *joining) describe(cluster *clusterv1alpha1.Cluster) *clusterv1alpha1.Cluster {
	spec := &cluster.Spec
	spec.ID = j.id
	spec.SyncMode = clusterv1alpha1.Push
	spec.APIEndpoint = j.APIEndpoint
	spec.InsecureSkipTLSVerification = j.Member.Insecure
	spec.SecretRef = j.secretRef(statusRole)
	spec.ImpersonatorSecretRef = j.secretRef(impersonatorRole)
	if j.ProxyURL != "" {
		spec.ProxyURL, spec.ProxyHeader = j.ProxyURL, j.ProxyHeader
	}
	if j.Provider != "" {
		spec.Provider = j.Provider
	}
	if j.Region != "" {
		spec.Region = j.Region
	}
	if len(j.Zones) > 0 {
		spec.Zones, spec.Zone = j.Zones, ""
	}
	if len(j.Labels) > 0 && cluster.Labels == nil {
		cluster.Labels = map[string]string{}
	}
	maps.Copy(cluster.Labels, j.Labels)
	return cluster
}

func (j *joining) secretRef(r role) *clusterv1alpha1.LocalSecretReference {
	return &clusterv1alpha1.LocalSecretReference{Namespace: names.ClusterNamespace, Name: identity{cluster: j.Name, role: r}.secret()}
}

func (j *joining) writeCluster(ctx context.Context) (cluster *clusterv1alpha1.Cluster, err error) {
	// The status of a Cluster is updated often, which causes conflicts.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cluster, err = j.tryWriteCluster(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("writing cluster %s to the hub: %w", j.Name, err)
	}
	return cluster, nil
}

func (j *joining) tryWriteCluster(ctx context.Context) (*clusterv1alpha1.Cluster, error) {
	found, err := j.hub.cluster(ctx, j.Name)
	if err != nil {
		return nil, err
	}
	if found == nil {
		cluster := j.describe(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: j.Name}})
		return cluster, j.hub.objects.Create(ctx, cluster)
	}
	changed := j.describe(found.DeepCopy())
	if equality.Semantic.DeepEqual(found, changed) {
		return found, nil
	}
	return changed, j.hub.objects.Update(ctx, changed)
}
