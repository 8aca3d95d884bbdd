package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
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

// TestClusterFlags tests that the status of clusters is collected at Karmada's times, and that its flags change them.
func TestClusterFlags(t *testing.T) {
	for name, test := range map[string]struct {
		flags []string
		want  clusterstatus.Options
	}{
		"defaults": {want: clusterstatus.Options{
			Interval: 10 * time.Second, SuccessThreshold: 30 * time.Second, FailureThreshold: 30 * time.Second,
			MonitorInterval: 5 * time.Second, MonitorGracePeriod: 40 * time.Second, StartupGracePeriod: time.Minute,
		}},
		"all given": {
			flags: []string{
				"--cluster-status-update-frequency=1s", "--cluster-success-threshold=2s", "--cluster-failure-threshold=3s", "--cluster-monitor-period=4s",
				"--cluster-monitor-grace-period=5s", "--cluster-startup-grace-period=6s", "--enable-cluster-resource-modeling=false",
			},
			want: clusterstatus.Options{
				Interval: 1 * time.Second, SuccessThreshold: 2 * time.Second, FailureThreshold: 3 * time.Second, MonitorInterval: 4 * time.Second,
				MonitorGracePeriod: 5 * time.Second, StartupGracePeriod: 6 * time.Second, WithoutResources: true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := NewOptions()
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			options.AddFlags(flags)
			if err := flags.Parse(test.flags); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, options.Clusters.Status); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
