package cli

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/console"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/parts"
)

// consoleAccount is the ServiceAccount of who opens the console of a local federation. It is an administrator, as is whoever may read the
// kubeconfig of that federation.
const consoleAccount = "cellplane-console"

// consoleOptions are the flags of the console command.
type consoleOptions struct {
	dir       string
	lifetime  time.Duration
	printOnly bool
}

func newConsole() *cobra.Command {
	o := consoleOptions{lifetime: time.Hour}
	cmd := &cobra.Command{
		Use:     "console",
		GroupID: groupLocal,
		Short:   "Open the web console of the local federation",
		Long: `Open the web console of the local federation in a browser, signed in as an
administrator by a token that is valid for an hour. Without a browser on this
machine, the address is printed: whoever has it is an administrator until the
token expires.

The gateway of a local federation has a certificate that browsers do not know.
They ask once whether to trust it. To avoid that, import the file that the
command names as an authority.

The console of other federations is at the address of their gateway, under
/console: sign in there.`,
		Example: `  cellplane console
  cellplane console --print --for 15m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	addDirFlag(cmd, &o.dir)
	cmd.Flags().DurationVar(&o.lifetime, "for", o.lifetime, "how long the token is valid, at least ten minutes")
	cmd.Flags().BoolVar(&o.printOnly, "print", false, "print the address and open no browser")
	return cmd
}

func (o *consoleOptions) run(ctx context.Context, out io.Writer) error {
	if o.lifetime < 10*time.Minute {
		return errors.New("--for must be at least 10m")
	}
	dir, err := federationDir(o.dir)
	if err != nil {
		return err
	}
	if !local.InUse(dir) {
		return fmt.Errorf("the federation in %s is not up; start it with `cellplane up`", dir)
	}
	config, err := loadKubeconfig(local.KubeconfigFile(dir), parts.GatewayContext)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of the local federation: %w", err)
	}
	token, err := consoleToken(ctx, config, o.lifetime)
	if err != nil {
		return err
	}
	address := strings.TrimSuffix(config.Host, "/") + console.Prefix + "/#token=" + url.QueryEscape(token)
	opened := func() {
		fmt.Fprintf(out, "The console opens in your browser. Its token is valid for %s.\n", o.lifetime)
	}
	if o.printOnly || openPrivately(ctx, dir, address, showFile, opened, browserPatience) != nil {
		fmt.Fprintf(out, "%s\n\nOpen this address in a browser. Whoever has it is an administrator of the federation for %s.\n", address, o.lifetime)
	}
	if config.CAFile != "" {
		fmt.Fprintf(out, "The browser asks whether to trust the gateway, unless it knows the authority %s.\n", config.CAFile)
	}
	return nil
}

// consoleToken returns a token of an administrator.
func consoleToken(ctx context.Context, config *rest.Config, lifetime time.Duration) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	accounts := client.CoreV1().ServiceAccounts(names.SystemNamespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: consoleAccount}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("creating the ServiceAccount of the console: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: consoleAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: names.SystemNamespace, Name: consoleAccount}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("giving the console the rights of an administrator: %w", err)
	}
	if err := bindInMembers(ctx, config, binding); err != nil {
		return "", err
	}
	seconds := int64(lifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := accounts.CreateToken(ctx, consoleAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for a token: %w", err)
	}
	return answer.Status.Token, nil
}

// bindInMembers gives the account of the console the rights of an administrator in members, too: they decide about logs and commands in
// containers. A member that does not answer is left out, so that the console opens; it gets the binding with the next token.
func bindInMembers(ctx context.Context, config *rest.Config, binding *rbacv1.ClusterRoleBinding) error {
	reader, err := newClient(config)
	if err != nil {
		return err
	}
	var clusters clusterv1alpha1.ClusterList
	if err := reader.List(ctx, &clusters); err != nil {
		return fmt.Errorf("reading the clusters of the federation: %w", err)
	}
	for i := range clusters.Items {
		member := rest.CopyConfig(config)
		member.Host = strings.TrimSuffix(config.Host, "/") + "/apis/cluster.karmada.io/v1alpha1/clusters/" + clusters.Items[i].Name + "/proxy"
		member.Timeout = memberPatience
		client, err := kubernetes.NewForConfig(member)
		if err != nil {
			return err
		}
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding.DeepCopy(), metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("giving the console the rights of an administrator in %s: %w", clusters.Items[i].Name, err)
		}
	}
	return nil
}

// memberPatience bounds how long a member may delay the console.
const memberPatience = 5 * time.Second

// browserPatience is how long a browser has to read the file that it was told to show.
const browserPatience = 10 * time.Second

// openPrivately shows an address with a secret in the user's browser. All users of a machine can read the arguments of its processes, so the
// browser gets a file that only this user can read, which leads to the address. The file is removed once the browser had time to read it.
// opened is called when the browser was told.
func openPrivately(ctx context.Context, dir, address string, show func(ctx context.Context, path string) error, opened func(), patience time.Duration) error {
	path := filepath.Join(dir, "console.html")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // of a command that was killed
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }()
	_, err = fmt.Fprintf(file, redirection, html.EscapeString(address))
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := show(ctx, path); err != nil {
		return err
	}
	opened()
	select {
	case <-ctx.Done():
	case <-time.After(patience):
	}
	return nil
}

// redirection is a page that leads to another.
const redirection = `<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url=%s">
<title>Cellplane</title>
`

// showFile shows a file in the user's browser.
func showFile(ctx context.Context, path string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	return exec.CommandContext(ctx, program, path).Run()
}
