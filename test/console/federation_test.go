// Package console tests the web console in a real browser, against a real local federation.
package console

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	_ "github.com/cellplane/cellplane/internal/cli" // makes the test cache depend on the program
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellplane is the program under test.
var cellplane string

func TestMain(m *testing.M) { testenv.ProgramMain(m, &cellplane) }

// federation is a local federation, as `cellplane up` starts it.
type federation struct {
	dir    string
	config *rest.Config // of its administrator, at the gateway
	client client.Client
	kube   kubernetes.Interface
	issuer *issuer // that its gateway trusts; nil for a federation that was there already
}

// start starts a federation until the test ends, or takes the one of $CELLPLANE_CONSOLE_DIR, which is quicker while a page is written.
func start(t *testing.T) *federation {
	t.Helper()
	f := &federation{dir: os.Getenv("CELLPLANE_CONSOLE_DIR")}
	if f.dir == "" {
		testenv.Binaries(t)
		f.dir = filepath.Join(t.TempDir(), "federation")
		t.Cleanup(func() { _ = f.command(context.Background(), "down", "--purge").Run() })
		f.issuer = newIssuer(t)
		f.run(t, "up", "--config", f.issuer.config(t), "--cells", "2", "--members", "2", "--nodes", "3")
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: local.KubeconfigFile(f.dir)}, &clientcmd.ConfigOverrides{CurrentContext: "cellplane"})
	var err error
	if f.config, err = loader.ClientConfig(); err != nil {
		t.Fatal(err)
	}
	f.config.QPS = -1
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if f.client, err = client.New(f.config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if f.kube, err = kubernetes.NewForConfig(f.config); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *federation) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cellplane, args...)
	cmd.Env = append(os.Environ(), "CELLPLANE_DIR="+f.dir)
	return cmd
}

// run runs a command that must succeed and returns its output.
func (f *federation) run(t *testing.T, args ...string) string {
	t.Helper()
	output, err := f.command(t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("cellplane %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

var linkPattern = regexp.MustCompile(`https://\S+/console/#token=\S+`)

// link returns the address that signs an administrator in.
func (f *federation) link(t *testing.T) string {
	t.Helper()
	output := f.run(t, "console", "--print")
	link := linkPattern.FindString(output)
	if link == "" {
		t.Fatalf("cellplane console prints no address:\n%s", output)
	}
	return link
}

// address returns the address of the console.
func (f *federation) address() string { return f.config.Host + "/console/" }
