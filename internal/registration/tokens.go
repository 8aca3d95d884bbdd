package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
)

// Token is a bootstrap token.
type Token struct {
	// Text is the whole token, ID.secret. CreateToken generates it if it is empty.
	Text string
	// Expires is when it stops to be valid; zero means never.
	Expires time.Time
	// Usages are what it is for: authentication, signing.
	Usages []string
	// Groups are those of who authenticates with it.
	Groups []string
	// Description is for people.
	Description string
}

// CreateToken creates a token on the hub.
func CreateToken(ctx context.Context, hub kubernetes.Interface, token Token, now time.Time) (Token, error) {
	if token.Text == "" {
		generated, err := bootstraputil.GenerateBootstrapToken()
		if err != nil {
			return Token{}, fmt.Errorf("generating a token: %w", err)
		}
		token.Text = generated
	}
	id, secret, err := tokens.ParseToken(token.Text)
	if err != nil {
		return Token{}, errors.New("a token has the form abcdef.0123456789abcdef: 6 and 16 lower-case letters or digits")
	}
	if err := token.validate(now); err != nil {
		return Token{}, err
	}
	data := map[string]string{
		bootstrapapi.BootstrapTokenIDKey:     id,
		bootstrapapi.BootstrapTokenSecretKey: secret,
	}
	for _, usage := range token.Usages {
		data[bootstrapapi.BootstrapTokenUsagePrefix+usage] = "true"
	}
	if len(token.Groups) > 0 {
		data[bootstrapapi.BootstrapTokenExtraGroupsKey] = strings.Join(token.Groups, ",")
	}
	if token.Description != "" {
		data[bootstrapapi.BootstrapTokenDescriptionKey] = token.Description
	}
	if !token.Expires.IsZero() {
		data[bootstrapapi.BootstrapTokenExpirationKey] = token.Expires.UTC().Format(time.RFC3339)
	}
	_, err = hub.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: bootstraputil.BootstrapTokenSecretName(id), Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: data,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return Token{}, fmt.Errorf("a token with the ID %s exists already; delete it first, or choose another", id)
	}
	if err != nil {
		return Token{}, fmt.Errorf("creating the token on the hub: %w", err)
	}
	return token, nil
}

func (t *Token) validate(now time.Time) error {
	if len(t.Usages) == 0 {
		return errors.New("a token needs a usage: authentication, signing or both")
	}
	if err := bootstraputil.ValidateUsages(t.Usages); err != nil {
		return err
	}
	if len(t.Groups) > 0 && !slices.Contains(t.Usages, "authentication") {
		return errors.New("groups are for tokens with the usage authentication")
	}
	for _, group := range t.Groups {
		if err := bootstraputil.ValidateBootstrapGroupName(group); err != nil {
			return err
		}
	}
	if !t.Expires.IsZero() && !t.Expires.After(now) {
		return errors.New("the token would have expired before it is created")
	}
	return nil
}

// ListTokens returns the tokens on the hub, by their IDs.
func ListTokens(ctx context.Context, hub kubernetes.Interface) ([]Token, error) {
	list, err := hub.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("type", string(corev1.SecretTypeBootstrapToken)).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the tokens of the hub: %w", err)
	}
	var all []Token
	for i := range list.Items {
		all = append(all, tokenIn(&list.Items[i]))
	}
	slices.SortFunc(all, func(a, b Token) int { return strings.Compare(a.Text, b.Text) })
	return all, nil
}

func tokenIn(secret *corev1.Secret) Token {
	token := Token{
		Text: bootstraputil.TokenFromIDAndSecret(secrets.GetData(secret, bootstrapapi.BootstrapTokenIDKey),
			secrets.GetData(secret, bootstrapapi.BootstrapTokenSecretKey)),
		Description: secrets.GetData(secret, bootstrapapi.BootstrapTokenDescriptionKey),
	}
	for key, value := range secret.Data {
		if usage, found := strings.CutPrefix(key, bootstrapapi.BootstrapTokenUsagePrefix); found && string(value) == "true" {
			token.Usages = append(token.Usages, usage)
		}
	}
	slices.Sort(token.Usages)
	if groups := secrets.GetData(secret, bootstrapapi.BootstrapTokenExtraGroupsKey); groups != "" {
		token.Groups = strings.Split(groups, ",")
	}
	if expires, err := time.Parse(time.RFC3339, secrets.GetData(secret, bootstrapapi.BootstrapTokenExpirationKey)); err == nil {
		token.Expires = expires
	}
	return token
}

// DeleteToken deletes a token of the hub, given whole or by its ID, and returns the ID.
func DeleteToken(ctx context.Context, hub kubernetes.Interface, token string) (string, error) {
	id := token
	if !bootstraputil.IsValidBootstrapTokenID(id) {
		var err error
		if id, _, err = tokens.ParseToken(token); err != nil {
			return "", errors.New("give a token as abcdef.0123456789abcdef, or its ID as abcdef")
		}
	}
	err := hub.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, bootstraputil.BootstrapTokenSecretName(id), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no token with the ID %s", id)
	}
	if err != nil {
		return "", fmt.Errorf("deleting token %s on the hub: %w", id, err)
	}
	return id, nil
}
