package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/cellplane/cellplane/api/names"
)

// tokenTimeout bounds the wait for the member's token controller.
const tokenTimeout = 30 * time.Second

// credentials are what a member issues for an identity.
type credentials struct {
	secret string // in the member
	token  []byte
}

// tokens returns the token Secrets of an identity, oldest first.
func (m *member) tokens(ctx context.Context, i identity) ([]corev1.Secret, error) {
	list, err := m.client.CoreV1().Secrets(names.ClusterNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{names.ClusterLabel: m.cluster}).String(),
		FieldSelector: fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the tokens of ServiceAccount %s/%s in cluster %s: %w", names.ClusterNamespace, i.account(), m.cluster, err)
	}
	tokens := slices.DeleteFunc(list.Items, func(secret corev1.Secret) bool {
		return secret.Annotations[corev1.ServiceAccountNameKey] != i.account()
	})
	slices.SortFunc(tokens, func(a, b corev1.Secret) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return tokens, nil
}

// issue issues another token for an identity.
func (m *member) issue(ctx context.Context, i identity) (credentials, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: i.account() + "-",
			Namespace:    names.ClusterNamespace,
			Labels:       m.labelsOf(i),
			Annotations:  map[string]string{corev1.ServiceAccountNameKey: i.account()},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	made, err := m.client.CoreV1().Secrets(names.ClusterNamespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return credentials{}, fmt.Errorf("requesting a token for ServiceAccount %s/%s in cluster %s: %w", names.ClusterNamespace, i.account(), m.cluster, err)
	}
	return m.wait(ctx, made)
}

// wait waits until the member has populated a token's Secret and accepts the token, and returns the credentials.
func (m *member) wait(ctx context.Context, secret *corev1.Secret) (credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	if !filled(secret) {
		var err error
		if secret, err = m.populated(ctx, secret.Name); err != nil {
			return credentials{}, err
		}
	}
	return credentialsIn(secret), m.confirmAccepted(ctx, secret)
}

// populated waits until the member has populated a token's Secret.
func (m *member) populated(ctx context.Context, name string) (*corev1.Secret, error) {
	secrets := m.client.CoreV1().Secrets(names.ClusterNamespace)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			return secrets.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			return secrets.Watch(ctx, options)
		},
	}
	event, err := watchtools.UntilWithSync(ctx, source, &corev1.Secret{}, nil, func(event watch.Event) (bool, error) {
		found, ok := event.Object.(*corev1.Secret)
		if !ok || event.Type == watch.Deleted {
			return false, nil
		}
		return filled(found), nil
	})
	if err != nil {
		return nil, fmt.Errorf("cluster %s has not populated the token of Secret %s/%s: is its kube-controller-manager running? %w", m.cluster, names.ClusterNamespace, name, err)
	}
	return event.Object.(*corev1.Secret), nil
}

// confirmAccepted waits until the member accepts a token. An API server compares a token with its cached copy of the Secret, which
// may still be the one from before the token was populated.
func (m *member) confirmAccepted(ctx context.Context, secret *corev1.Secret) error {
	config := rest.AnonymousClientConfig(m.config)
	config.BearerToken = string(secret.Data[corev1.ServiceAccountTokenKey])
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("preparing a client for cluster %s: %w", m.cluster, err)
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = client.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		return !apierrors.IsUnauthorized(last), nil
	})
	if err != nil {
		return fmt.Errorf("cluster %s does not accept the token of Secret %s/%s: %w", m.cluster, names.ClusterNamespace, secret.Name, errors.Join(last, err))
	}
	return nil
}

func filled(secret *corev1.Secret) bool { return len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 }

func credentialsIn(secret *corev1.Secret) credentials {
	return credentials{secret: secret.Name, token: secret.Data[corev1.ServiceAccountTokenKey]}
}

func (m *member) deleteTokens(ctx context.Context, tokens []corev1.Secret) error {
	for _, token := range tokens {
		err := m.client.CoreV1().Secrets(names.ClusterNamespace).Delete(ctx, token.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting Secret %s/%s in cluster %s: %w", names.ClusterNamespace, token.Name, m.cluster, err)
		}
	}
	return nil
}
