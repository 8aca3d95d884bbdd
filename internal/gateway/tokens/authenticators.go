package tokens

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/fleet"
)

// signingAlgs are accepted with an AuthenticationConfiguration, which cannot name any: all asymmetric ones.
var signingAlgs = []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"}

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme, serializer.EnableStrict)
)

func init() { install.Install(scheme) }

// New returns the authenticators that the options configure, in the order in which they are asked. They run until the context ends.
func New(ctx context.Context, o Options) ([]authenticator.Token, error) {
	var all []authenticator.Token
	switch {
	case o.ConfigFile != "":
		one, err := newReloaded(ctx, o.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("reading --authentication-config: %w", err)
		}
		all = append(all, one)
	case o.OIDC.IssuerURL != "":
		options := oidc.Options{JWTAuthenticator: o.OIDC.issuer(), SupportedSigningAlgs: o.OIDC.SigningAlgs, APIServerID: serverID}
		var err error
		if options.Client, err = o.OIDC.client(); err != nil {
			return nil, fmt.Errorf("reading --oidc-ca-file: %w", err)
		}
		one, err := oidc.New(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("configuring the issuer %s: %w", o.OIDC.IssuerURL, err)
		}
		all = append(all, one)
	}
	if o.WebhookConfigFile != "" {
		one, err := newWebhook(o)
		if err != nil {
			return nil, fmt.Errorf("configuring the token webhook: %w", err)
		}
		all = append(all, one)
	}
	return all, nil
}

// parse decodes a file. The file must name its kind: one that is being written may be empty, and must not lock everybody out.
func parse(path string, data []byte) (*apiserver.AuthenticationConfiguration, error) {
	object, err := runtime.Decode(codecs.UniversalDecoder(), data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	config, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("%s: want an AuthenticationConfiguration, got %T", path, object)
	}
	if config.Anonymous != nil {
		return nil, fmt.Errorf("%s: anonymous must not be set: a gateway serves only health checks without authentication", path)
	}
	if errs := validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), config, nil); len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", path, errs.ToAggregate())
	}
	return config, nil
}

// issuer returns the flags as an entry of an AuthenticationConfiguration.
func (o *OIDC) issuer() apiserver.JWTAuthenticator {
	prefix := o.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && o.UsernameClaim != "email":
		prefix = o.IssuerURL + "#"
	}
	issuer := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: o.UsernameClaim, Prefix: ptr.To(prefix)}},
	}
	if o.GroupsClaim != "" {
		issuer.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.GroupsClaim, Prefix: ptr.To(o.GroupsPrefix)}
	}
	for claim, value := range o.RequiredClaims {
		issuer.ClaimValidationRules = append(issuer.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	return issuer
}

// issuerTimeout bounds requests to an issuer, as kube-apiserver does.
const issuerTimeout = 30 * time.Second

// client returns a client for the issuer that follows the file of its CA, nil without one.
func (o *OIDC) client() (*http.Client, error) {
	if o.CAFile == "" {
		return nil, nil
	}
	transport, err := fleet.VerifiedBy(o.CAFile)
	return &http.Client{Transport: transport, Timeout: issuerTimeout}, err
}

// serverID names gateways in the metrics of issuers.
const serverID = "cellplane-gateway"

// newOIDC returns the authenticator of an issuer in an AuthenticationConfiguration.
func newOIDC(ctx context.Context, issuer apiserver.JWTAuthenticator) (oidc.AuthenticatorTokenWithHealthCheck, error) {
	options := oidc.Options{JWTAuthenticator: issuer, SupportedSigningAlgs: signingAlgs, APIServerID: serverID}
	if issuer.Issuer.CertificateAuthority != "" {
		ca, err := dynamiccertificates.NewStaticCAContent("issuer", []byte(issuer.Issuer.CertificateAuthority))
		if err != nil {
			return nil, err
		}
		options.CAContentProvider = ca
	}
	return oidc.New(ctx, options)
}

// webhookTimeout bounds requests to the webhook, as kube-apiserver does.
const webhookTimeout = 30 * time.Second

func newWebhook(o Options) (authenticator.Token, error) {
	kubeconfig, err := fleet.ReadKubeconfig(o.WebhookConfigFile, "")
	if err != nil {
		return nil, err
	}
	config := kubeconfig.Config()
	config.QPS, config.Timeout = -1, webhookTimeout
	return webhook.New(config, o.WebhookVersion, nil, *genericoptions.DefaultAuthWebhookRetryBackoff())
}
