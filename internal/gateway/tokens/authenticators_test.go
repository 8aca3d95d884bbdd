package tokens

import "testing"

// TestParse parses invalid files, and files that are being written.
func TestParse(t *testing.T) {
	const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: "
	for name, test := range map[string]struct {
		data string
		ok   bool
	}{
		"no issuers":     {header + "AuthenticationConfiguration\njwt: []\n", true},
		"empty":          {"", false},
		"blank":          {"\n \n", false},
		"a comment":      {"# to be written\n", false},
		"no kind":        {"jwt: []\n", false},
		"another kind":   {header + "AuthorizationConfiguration\n", false},
		"unknown fields": {header + "AuthenticationConfiguration\njtw: []\n", false},
		"anonymous":      {header + "AuthenticationConfiguration\nanonymous: {enabled: true}\n", false},
		"no issuer":      {header + "AuthenticationConfiguration\njwt: [{}]\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if config, err := parse("authentication.yaml", []byte(test.data)); (err == nil) != test.ok {
				t.Errorf("got %v, %v", config, err)
			}
		})
	}
}
