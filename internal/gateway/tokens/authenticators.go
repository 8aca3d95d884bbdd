package tokens

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/utils/ptr"
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
		issuer, err := o.OIDC.issuer()
		if err != nil {
			return nil, fmt.Errorf("reading --oidc-ca-file: %w", err)
		}
		one, err := newOIDC(ctx, issuer, o.OIDC.SigningAlgs)
		if err != nil {
			return nil, fmt.Errorf("configuring the issuer %s: %w", issuer.Issuer.URL, err)
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
func (o *OIDC) issuer() (apiserver.JWTAuthenticator, error) {
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
	if o.CAFile == "" {
		return issuer, nil
	}
	ca, err := os.ReadFile(o.CAFile)
	issuer.Issuer.CertificateAuthority = string(ca)
	return issuer, err
}

func newOIDC(ctx context.Context, issuer apiserver.JWTAuthenticator, algs []string) (oidc.AuthenticatorTokenWithHealthCheck, error) {
	options := oidc.Options{JWTAuthenticator: issuer, SupportedSigningAlgs: algs, APIServerID: "cellplane-gateway"}
	if issuer.Issuer.CertificateAuthority != "" {
		ca, err := dynamiccertificates.NewStaticCAContent("issuer", []byte(issuer.Issuer.CertificateAuthority))
		if err != nil {
			return nil, err
		}
		options.CAContentProvider = ca
	}
	return oidc.New(ctx, options)
}

func newWebhook(o Options) (authenticator.Token, error) {
	config, err := webhookutil.LoadKubeconfig(o.WebhookConfigFile, nil)
	if err != nil {
		return nil, err
	}
	return webhook.New(config, o.WebhookVersion, nil, *genericoptions.DefaultAuthWebhookRetryBackoff())
}
