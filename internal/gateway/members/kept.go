package members

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// keepEvery is the shortest interval between two writes.
const keepEvery = 2 * time.Second

// known is the kept state: everything that is needed to reach members.
type known struct {
	Clusters map[string]*clusterv1alpha1.Cluster `json:"clusters"`
	Secrets  map[string]*corev1.Secret           `json:"secrets"`
}

// Cluster returns a Cluster of the hub, or the kept one if the hub has been unreachable since the start. The error can be sent to a client.
func (d *Directory) Cluster(name string) (*clusterv1alpha1.Cluster, error) {
	if !d.synced() {
		kept := d.kept.Kept()
		if kept == nil {
			return nil, apierrors.NewServiceUnavailable("the gateway does not know the clusters yet; try again in a moment")
		}
		if cluster := kept.Clusters[name]; cluster != nil {
			return cluster, nil
		}
		return nil, apierrors.NewNotFound(clusters, name)
	}
	object, found, err := d.clusters.GetStore().GetByKey(name)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if cluster, ok := object.(*clusterv1alpha1.Cluster); found && ok {
		return cluster, nil
	}
	return nil, apierrors.NewNotFound(clusters, name)
}

// secret returns a Secret in the same way, nil if it does not exist.
func (d *Directory) secret(namespace, name string) (*corev1.Secret, error) {
	key := namespace + "/" + name
	if !d.synced() {
		if kept := d.kept.Kept(); kept != nil {
			return kept.Secrets[key], nil
		}
		return nil, nil
	}
	object, _, err := d.secrets.GetStore().GetByKey(key)
	secret, _ := object.(*corev1.Secret)
	return secret, err
}

func (d *Directory) synced() bool { return d.clusters.HasSynced() && d.secrets.HasSynced() }

// noteChanges signals every change, so that it is kept.
func (d *Directory) noteChanges() error {
	note := func() {
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}
	for _, informer := range []cache.SharedIndexInformer{d.clusters, d.secrets} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { note() }, UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() },
		}); err != nil {
			return err
		}
	}
	return nil
}

// keep writes changes to disk until the context ends.
func (d *Directory) keep(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), d.clusters.HasSynced, d.secrets.HasSynced) {
		return
	}
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	for {
		if err := d.kept.Save(d.current()); err != nil {
			klog.FromContext(ctx).Error(err, "keeping the clusters failed, after a restart they are reachable only while the hub is up")
		}
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C: // write several changes at once
		}
	}
}

// current returns the state to keep: Clusters, and the Secrets that are needed to reach them.
func (d *Directory) current() known {
	k := known{Clusters: map[string]*clusterv1alpha1.Cluster{}, Secrets: map[string]*corev1.Secret{}}
	for _, object := range d.clusters.GetStore().List() {
		cluster, ok := object.(*clusterv1alpha1.Cluster)
		if !ok {
			continue
		}
		k.Clusters[cluster.Name] = &clusterv1alpha1.Cluster{ObjectMeta: cluster.ObjectMeta, Spec: cluster.Spec}
		if ref := cluster.Spec.ImpersonatorSecretRef; ref != nil {
			if secret, err := d.secret(ref.Namespace, ref.Name); err == nil && secret != nil {
				k.Secrets[ref.Namespace+"/"+ref.Name] = secret
			}
		}
	}
	return k
}
