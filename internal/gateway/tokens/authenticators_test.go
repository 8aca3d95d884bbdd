package tokens

import "testing"

// TestParse reads what a file may hold while it is being written, or by mistake.
func TestParse(t *testing.T) {
	const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: "
	for name, test := range map[string]struct {
		data string
		ok   bool
	}{
		"nobody is let in": {header + "AuthenticationConfiguration\njwt: []\n", true},
		"empty":            {"", false},
		"blank":            {"\n \n", false},
		"a remark":         {"# to be written\n", false},
		"no kind":          {"jwt: []\n", false},
		"another kind":     {header + "AuthorizationConfiguration\n", false},
		"unknown fields":   {header + "AuthenticationConfiguration\njtw: []\n", false},
		"strangers":        {header + "AuthenticationConfiguration\nanonymous: {enabled: true}\n", false},
		"no issuer":        {header + "AuthenticationConfiguration\njwt: [{}]\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if config, err := parse("authentication.yaml", []byte(test.data)); (err == nil) != test.ok {
				t.Errorf("got %v, %v", config, err)
			}
		})
	}
}
