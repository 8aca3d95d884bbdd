package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// testOptions returns the default options with a kubeconfig.
func testOptions(t *testing.T) *Options {
	t.Helper()
	o := NewOptions()
	o.Cell, o.Kubeconfig = "cell-a", filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(o.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// configOf completes and validates options.
func configOf(o *Options) (*Config, error) {
	completed, err := o.Complete()
	if err != nil {
		return nil, err
	}
	return NewConfig(completed), completed.Validate()
}

// TestFlags checks the defaults of flags that other schedulers and controllers have too.
func TestFlags(t *testing.T) {
	flags := pflag.NewFlagSet("engine", pflag.ContinueOnError)
	NewOptions().AddFlags(flags)
	for name, value := range map[string]string{
		"plugins": "[*]", "enable-empty-workload-propagation": "false", "scheduling-profiles": "", "skipped-propagating-namespaces": "[kube-.*]",
		"enable-no-execute-taint-eviction": "true", "no-execute-taint-eviction-purge-mode": "Gracefully", "graceful-eviction-timeout": "10m0s",
		"resource-eviction-rate": "200", "secondary-resource-eviction-rate": "2", "descheduling-interval": "2m0s", "unschedulable-threshold": "5m0s",
	} {
		if flag := flags.Lookup(name); flag == nil || flag.DefValue != value {
			t.Errorf("the flag --%s is %+v, want the default %s", name, flag, value)
		}
	}
}

// TestValidate checks that invalid options are refused with the name of the flag.
func TestValidate(t *testing.T) {
	if config, err := configOf(testOptions(t)); err != nil || config.Validate() != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	for flag, change := range map[string]func(*Options){
		"--cell":                                 func(o *Options) { o.Cell = "" },
		"--kubeconfig":                           func(o *Options) { o.Kubeconfig = "" },
		"--federation-kubeconfig":                func(o *Options) { o.HubKubeconfig = o.Kubeconfig },
		"--no-execute-taint-eviction-purge-mode": func(o *Options) { o.PurgeMode = "Never" },
		"--resource-eviction-rate":               func(o *Options) { o.Failover.Taints.Rates.Normal = 0 },
		"--skipped-propagating-namespaces":       func(o *Options) { o.SkippedNamespaces = []string{"("} },
		`--plugins: unknown plugin "MyPlugin"`:   func(o *Options) { o.Plugins = []string{"*", "MyPlugin"} },
	} {
		o := testOptions(t)
		change(o)
		if _, err := configOf(o); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: the error is %v", flag, err)
		}
	}
}

// P15: namespaces of Kubernetes are skipped by default; expressions match the whole name.
func TestSkippedNamespaces(t *testing.T) {
	o := testOptions(t)
	o.SkippedNamespaces = append(o.SkippedNamespaces, "a|b")
	config, err := configOf(o)
	if err != nil {
		t.Fatal(err)
	}
	var skipped []string
	for _, name := range []string{"kube-system", "my-kube-system", "a", "b", "ab", "team"} {
		for _, expression := range config.SkippedNamespaces {
			if expression.MatchString(name) {
				skipped = append(skipped, name)
			}
		}
	}
	if want := []string{"kube-system", "a", "b"}; !slices.Equal(skipped, want) {
		t.Errorf("%v are skipped, want %v", skipped, want)
	}
}

func TestPlugins(t *testing.T) {
	o := testOptions(t)
	o.EmptyWorkloads = true
	if config, err := configOf(o); err != nil || config.Plugins != nil || !config.EmptyWorkloads {
		t.Errorf("all plugins: %+v %v", config, err)
	}
	o.Plugins = []string{"*", "-ClusterEviction"}
	if config, err := configOf(o); err != nil || config.Plugins == nil {
		t.Errorf("one plugin disabled: %+v %v", config, err)
	}
}

// TestSchedulingProfiles reads the profiles of an engine, and checks that errors are one sentence with the place.
func TestSchedulingProfiles(t *testing.T) {
	o := testOptions(t)
	read := func(text string) (*Config, error) {
		o.Profiles = filepath.Join(t.TempDir(), "profiles.yaml")
		if err := os.WriteFile(o.Profiles, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return configOf(o)
	}
	const header = "apiVersion: cellplane.io/v1alpha1\nkind: SchedulingProfile\nmetadata: {name: own-first}\n"
	config, err := read(header + "spec: {sites: {burst: {}}}\n")
	if err != nil || len(config.Profiles) != 1 || config.Profiles[0].Name != "own-first" || config.Profiles[0].Spec.Sites.Burst == nil {
		t.Fatalf("%+v %v", config, err)
	}
	if _, err := read(header + "spec: {sites: {burts: {}}}\n"); err == nil || !strings.Contains(err.Error(), "--scheduling-profiles") || !strings.Contains(err.Error(), "spec.sites.burts") || strings.Contains(err.Error(), "\n") {
		t.Errorf("invalid file: %v", err)
	}
	o.Profiles = filepath.Join(t.TempDir(), "missing.yaml")
	if _, err := configOf(o); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("missing file: %v", err)
	}
	o.Profiles = ""
	if config, err := configOf(o); err != nil || config.Profiles != nil {
		t.Errorf("no file: %v %v", config, err)
	}
}
