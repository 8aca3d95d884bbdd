package tokens

import "os"

// Issuer is what a client has to know of an issuer to sign in with it.
type Issuer struct {
	// URL identifies the issuer.
	URL string
	// ClientID is the audience that tokens must have; the first if there are several.
	ClientID string
}

// Issuers returns the issuers of the options. Those of a file are read from it anew; a file that is invalid has none.
func Issuers(o Options) []Issuer {
	if o.OIDC.IssuerURL != "" {
		return []Issuer{{URL: o.OIDC.IssuerURL, ClientID: o.OIDC.ClientID}}
	}
	if o.ConfigFile == "" {
		return nil
	}
	data, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return nil
	}
	config, err := parse(o.ConfigFile, data)
	if err != nil {
		return nil
	}
	var all []Issuer
	for _, one := range config.JWT {
		audience := ""
		if len(one.Issuer.Audiences) > 0 {
			audience = one.Issuer.Audiences[0]
		}
		all = append(all, Issuer{URL: one.Issuer.URL, ClientID: audience})
	}
	return all
}
