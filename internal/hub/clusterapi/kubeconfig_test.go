package clusterapi

import (
	"strings"
	"testing"
)

func TestMemberConfig(t *testing.T) {
	const (
		head    = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
		cluster = "clusters: [{name: c, cluster: {server: 'https://member.example:6443'}}]\n"
		token   = "users: [{name: u, user: {token: secret}}]\n"
	)
	for _, test := range []struct{ name, kubeconfig, refused string }{
		{"usable", head + cluster + token, ""},
		{"empty", "", "empty"},
		{"no kubeconfig", "hello", "cannot unmarshal"},
		{"no cluster", head + token, "no configuration"},
		{"program", head + cluster + "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}}}]\n", "runs a program"},
		{"program of a user that is not current", head + cluster + "users: [{name: u, user: {token: secret}}, {name: v, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}}}]\n", "runs a program"},
		{"provider", head + cluster + "users: [{name: u, user: {auth-provider: {name: oidc}}}]\n", "runs a program"},
		{"file of a token", head + cluster + "users: [{name: u, user: {tokenFile: /etc/passwd}}]\n", "names files"},
		{"file of a key", head + cluster + "users: [{name: u, user: {client-certificate: /a, client-key: /b}}]\n", "names files"},
		{"file of an authority", head + token + "clusters: [{name: c, cluster: {server: 'https://member.example:6443', certificate-authority: /etc/ssl/ca.crt}}]\n", "names a file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := memberConfig([]byte(test.kubeconfig))
			switch {
			case test.refused == "" && err != nil:
				t.Fatal(err)
			case test.refused == "" && (config.Host != "https://member.example:6443" || config.BearerToken != "secret"):
				t.Errorf("it leads to %s with token %q", config.Host, config.BearerToken)
			case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("it is answered %v, want %q", err, test.refused)
			}
		})
	}
}
