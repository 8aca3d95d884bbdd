package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// storageClass is the default class. Its volumes are directories of the node with the group of their pods, unlike those of type hostPath.
const storageClass = "directories"

// provisioner makes volumes for claims, and removes them with their claims.
type provisioner struct {
	*Node
	ctx context.Context
}

func (n *Node) startVolumes(ctx context.Context) error {
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: storageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "cellplane.io/directories",
	}
	if _, err := n.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	p := &provisioner{Node: n, ctx: context.WithoutCancel(ctx)}
	factory := informers.NewSharedInformerFactory(n.Client, 0)
	claims, volumes := factory.Core().V1().PersistentVolumeClaims().Informer(), factory.Core().V1().PersistentVolumes().Informer()
	if _, err := claims.AddEventHandler(handler(p.provide)); err != nil {
		return err
	}
	if _, err := volumes.AddEventHandler(handler(p.remove)); err != nil {
		return err
	}
	factory.StartWithContext(p.ctx)
	return errors.Join(factory.WaitForCacheSyncWithContext(ctx).AsError())
}

// handler calls a function with every object that is new or has changed.
func handler[T any](changed func(T) error) cache.ResourceEventHandler {
	call := func(object any) {
		if err := changed(object.(T)); err != nil { //nolint:forcetypeassert // the informer is of this type
			klog.ErrorS(err, "a volume is not provided")
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(_, object any) { call(object) }}
}

func (p *provisioner) provide(claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != storageClass || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return nil
	}
	dir := p.volumeDir(string(claim.UID))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "volume-" + string(claim.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "cellplane.io/directories"}},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: storageClass, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
			}}}},
		},
	}
	_, err := p.Client.CoreV1().PersistentVolumes().Create(p.ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// remove removes a volume whose claim is gone.
func (p *provisioner) remove(volume *corev1.PersistentVolume) error {
	if volume.Status.Phase != corev1.VolumeReleased || volume.Spec.ClaimRef == nil {
		return nil
	}
	if err := os.RemoveAll(p.volumeDir(string(volume.Spec.ClaimRef.UID))); err != nil {
		return fmt.Errorf("removing a volume: %w", err)
	}
	err := p.Client.CoreV1().PersistentVolumes().Delete(p.ctx, volume.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p *provisioner) volumeDir(claim string) string { return filepath.Join(p.dir, "volumes", claim) }
