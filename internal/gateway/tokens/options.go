package tokens

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// Options are the flags about tokens, with kube-apiserver's names.
type Options struct {
	// ConfigFile is a file with an AuthenticationConfiguration. It excludes the OIDC flags.
	ConfigFile string
	// OIDC is one issuer given by flags.
	OIDC OIDC
	// WebhookConfigFile is the kubeconfig of the webhook that verifies tokens.
	WebhookConfigFile string
	// WebhookVersion is the version of the TokenReviews that it gets.
	WebhookVersion string
}

// OIDC is an OpenID Connect issuer.
type OIDC struct {
	IssuerURL, ClientID, CAFile   string
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	RequiredClaims                map[string]string
	SigningAlgs                   []string
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{OIDC: OIDC{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}}, WebhookVersion: "v1"}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.ConfigFile, "authentication-config", o.ConfigFile, "file with an AuthenticationConfiguration; excludes the flags --oidc-…")
	flags.StringVar(&o.OIDC.IssuerURL, "oidc-issuer-url", o.OIDC.IssuerURL, "https URL of the OpenID issuer whose tokens are accepted")
	flags.StringVar(&o.OIDC.ClientID, "oidc-client-id", o.OIDC.ClientID, "audience that tokens must have")
	flags.StringVar(&o.OIDC.CAFile, "oidc-ca-file", o.OIDC.CAFile, "CA of the issuer (default: the host's)")
	flags.StringVar(&o.OIDC.UsernameClaim, "oidc-username-claim", o.OIDC.UsernameClaim, "claim with the user's name")
	flags.StringVar(&o.OIDC.UsernamePrefix, "oidc-username-prefix", o.OIDC.UsernamePrefix, "prefix of user names; - for none (default: the issuer and #, unless the claim is email)")
	flags.StringVar(&o.OIDC.GroupsClaim, "oidc-groups-claim", o.OIDC.GroupsClaim, "claim with the user's groups")
	flags.StringVar(&o.OIDC.GroupsPrefix, "oidc-groups-prefix", o.OIDC.GroupsPrefix, "prefix of groups")
	flags.Var(cliflag.NewMapStringStringNoSplit(&o.OIDC.RequiredClaims), "oidc-required-claim", "claim that tokens must have, as key=value; may be repeated")
	flags.StringSliceVar(&o.OIDC.SigningAlgs, "oidc-signing-algs", o.OIDC.SigningAlgs, "accepted signing algorithms")
	flags.StringVar(&o.WebhookConfigFile, "authentication-token-webhook-config-file", o.WebhookConfigFile, "kubeconfig of the webhook that verifies tokens")
	flags.StringVar(&o.WebhookVersion, "authentication-token-webhook-version", o.WebhookVersion, "version of the TokenReviews that the webhook gets")
}

// Validate returns everything that is invalid.
func (o *Options) Validate() []error {
	var errs []error
	if (o.OIDC.IssuerURL == "") != (o.OIDC.ClientID == "") {
		errs = append(errs, errors.New("--oidc-issuer-url and --oidc-client-id must be set together"))
	}
	if o.ConfigFile != "" && o.OIDC.IssuerURL != "" {
		errs = append(errs, errors.New("--authentication-config and the flags --oidc-… exclude each other"))
	}
	if o.WebhookVersion != "v1" && o.WebhookVersion != "v1beta1" {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-version must be v1 or v1beta1, not %q", o.WebhookVersion))
	}
	return errs
}
