package cellcontrolplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/federate"
	"github.com/cellplane/cellplane/internal/install"
)

// issue issues the certificates of the cell, unless cert-manager does, and reports whether all of them are there.
func (r *run) issue(ctx context.Context, wanted *install.Cell) (complete bool, err error) {
	if err := federate.Issue(ctx, r.Secrets, wanted.Config); err != nil {
		r.set(v1alpha1.ConditionCertificatesAvailable, metav1.ConditionFalse, "NotIssued", err.Error())
		return false, err
	}
	for _, name := range wanted.Secrets {
		_, err := r.Secrets.CoreV1().Secrets(r.plane.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			r.set(v1alpha1.ConditionCertificatesAvailable, metav1.ConditionFalse, "NotIssued", fmt.Sprintf("The Secret %s is not there yet.", name))
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	r.set(v1alpha1.ConditionCertificatesAvailable, metav1.ConditionTrue, "Issued", "")
	return true, nil
}

// answers reports whether the API servers answer, and are ready, which says that their etcd answers.
func (r *run) answers(ctx context.Context, wanted *install.Cell) bool {
	if err := federate.Answers(ctx, r.Secrets, wanted.Config, wanted.Config.Cells[0]); err != nil {
		r.set(v1alpha1.ConditionAvailable, metav1.ConditionFalse, "NotAnswering", "The API servers do not answer: "+err.Error())
		return false
	}
	r.set(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "Available", "")
	return true
}

// tell gives Cluster API the kubeconfig, the certificates and the endpoint, and says at last that the control plane is initialized.
func (r *run) tell(ctx context.Context, wanted *install.Cell) error {
	plane := wanted.Config.Cells[0]
	kubeconfig, err := federate.Kubeconfig(ctx, r.Secrets, wanted.Config, plane)
	if err != nil {
		return fmt.Errorf("making the kubeconfig: %w", err)
	}
	if err := r.write(ctx, kubeconfigPurpose, map[string][]byte{"value": kubeconfig}); err != nil {
		return err
	}
	for _, purpose := range slices.Sorted(maps.Keys(wanted.Authorities)) {
		secret, err := r.Secrets.CoreV1().Secrets(r.plane.Namespace).Get(ctx, wanted.Authorities[purpose], metav1.GetOptions{})
		if err != nil {
			return err
		}
		pair := map[string][]byte{corev1.TLSCertKey: secret.Data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: secret.Data[corev1.TLSPrivateKeyKey]}
		if err := r.write(ctx, purpose, pair); err != nil {
			return err
		}
	}
	endpoint, err := endpointOf(plane.Server)
	if err != nil {
		return err
	}
	if err := r.edit(ctx, func(plane *v1alpha1.CellControlPlane) bool {
		changed := plane.Spec.ControlPlaneEndpoint != endpoint
		plane.Spec.ControlPlaneEndpoint = endpoint
		return changed
	}); err != nil {
		return err
	}
	r.status.Initialization.ControlPlaneInitialized = ptr.To(true)
	return nil
}

func endpointOf(server string) (v1alpha1.APIEndpoint, error) {
	address, err := url.Parse(server)
	if err != nil {
		return v1alpha1.APIEndpoint{}, err
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	return v1alpha1.APIEndpoint{Host: address.Hostname(), Port: int32(port)}, err
}

// kubeconfigPurpose is what Cluster API calls the kubeconfig.
const kubeconfigPurpose = "kubeconfig"

// write writes a Secret of Cluster API. One that belongs to somebody else is left alone.
func (r *run) write(ctx context.Context, purpose string, data map[string][]byte) error {
	secrets := r.Secrets.CoreV1().Secrets(r.plane.Namespace)
	name := r.cell + "-" + purpose
	present, err := secrets.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{clusterNameLabel: r.cell},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: r.plane.Name, UID: r.plane.UID, Controller: ptr.To(true)}},
			},
			Type: secretType, Data: data,
		}, metav1.CreateOptions{})
	case err != nil:
	case !metav1.IsControlledBy(present, r.plane):
		err = errors.New("it is not that of this CellControlPlane; rename it, or use another name for the Cluster")
	case !maps.EqualFunc(present.Data, data, func(a, b []byte) bool { return string(a) == string(b) }):
		present.Data = data
		_, err = secrets.Update(ctx, present, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the Secret %s: %w", name, err)
	}
	return nil
}

// untell removes the Secrets of Cluster API. The garbage collector would, too, but not before another control plane of this name needs theirs.
func (r *run) untell(ctx context.Context) error {
	secrets := r.Secrets.CoreV1().Secrets(r.plane.Namespace)
	found, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: labels.Set{clusterNameLabel: r.cell}.String()})
	if err != nil {
		return fmt.Errorf("looking for Secrets: %w", err)
	}
	for i := range found.Items {
		if !metav1.IsControlledBy(&found.Items[i], r.plane) {
			continue
		}
		if err := secrets.Delete(ctx, found.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the Secret %s: %w", found.Items[i].Name, err)
		}
	}
	return nil
}

// registration changes when the control plane has to be registered again.
func (r *run) registration(ctx context.Context, wanted *install.Cell) (string, error) {
	plane := wanted.Config.Cells[0]
	sum := sha256.New()
	fmt.Fprintf(sum, "%+v", plane)
	for _, name := range []string{plane.AdminSecret, plane.FrontProxySecret, plane.EtcdSecret} {
		secret, err := r.Secrets.CoreV1().Secrets(r.plane.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading the Secret %s: %w", name, err)
		}
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			sum.Write(secret.Data[key])
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
