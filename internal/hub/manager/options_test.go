package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://one.example.com"}}, {name: two, cluster: {server: "https://two.example.com"}}]
contexts: [{name: one, context: {cluster: one}}, {name: two, context: {cluster: two}}]
`

func TestOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		flags []string
		host  string
		wrong string // part of the error
	}{
		{name: "defaults", host: "https://one.example.com"},
		{name: "another context", flags: []string{"--context=two"}, host: "https://two.example.com"},
		{name: "no such context", flags: []string{"--context=three"}, wrong: "--kubeconfig"},
		{name: "no such file", flags: []string{"--kubeconfig=nowhere"}, wrong: "--kubeconfig"},
		{name: "too many workers", flags: []string{"--copy-workers=5000"}, wrong: "--copy-workers must be between 1 and 1024"},
		{name: "no address", flags: []string{"--bind-address="}, host: "https://one.example.com"},
		{name: "half an address", flags: []string{"--bind-address=localhost"}, wrong: "--bind-address must be host:port"},
		{name: "lease too short", flags: []string{"--leader-elect-lease-duration=3s"}, wrong: "--leader-elect-lease-duration >"},
		{name: "retries too far apart", flags: []string{"--leader-elect-retry-period=9s"}, wrong: "--leader-elect-retry-period"},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := NewOptions()
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			options.AddFlags(flags)
			if err := flags.Parse(append([]string{"--kubeconfig=" + file}, test.flags...)); err != nil {
				t.Fatal(err)
			}
			completed, err := options.Complete()
			if err == nil {
				err = completed.Validate()
			}
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Fatalf("got error %v, want one with %q", err, test.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			config := completed.Config()
			if config.Hub.Host != test.host || config.Identity == "" || config.Clusters.Status.Interval != 10*time.Second {
				t.Errorf("got %+v", config)
			}
		})
	}
}

// TestZeroOptions tests that what was left out in code is filled in.
func TestZeroOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	completed, err := (&Options{Kubeconfig: file}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := completed.Validate(); err != nil {
		t.Error(err)
	}
}
