package cells

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/local"
)

// runInterrupted runs a command that shows a change, and interrupts it as soon as it has printed a line.
func (w *world) runInterrupted(wanted *regexp.Regexp, args ...string) {
	w.Helper()
	defer w.logDuration(strings.Join(args, " ") + " (interrupted)")()
	ctx, cancel := context.WithTimeout(w.Context(), changeWithin)
	defer cancel()
	cmd := w.command(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	shown, all := false, ""
	for lines := bufio.NewScanner(stdout); !shown && lines.Scan(); {
		shown = wanted.MatchString(lines.Text())
		all += lines.Text() + "\n"
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		w.Error(err)
	}
	_, _ = io.Copy(io.Discard, stdout)
	err = cmd.Wait()
	var exit *exec.ExitError
	if !shown || !errors.As(err, &exit) || !strings.Contains(stderr.String(), "the change continues, watch it with `cellplane cells watch`") {
		w.Fatalf("cellplane %s was interrupted: %v; printed %q: %v, in\n%s\nand the error %q", strings.Join(args, " "), err, wanted, shown, all, stderr.String())
	}
}

// addByFlags lets a cell join that neither the hub nor the local federation knows. Flags give its endpoints and credentials.
func (w *world) addByFlags(name string) {
	w.Helper()
	cell := w.forget(name)
	args := []string{
		"cells", "add", name, "--kubeconfig", local.KubeconfigFile(w.dir), "--context", local.HubName, "--dir", w.TempDir(),
		"--server", cell.Spec.Endpoint.Server, "--server-name", cell.Spec.Endpoint.ServerName,
		"--etcd", strings.Join(cell.Spec.Etcd.Endpoints, ","),
	}
	for _, given := range []struct {
		ref           v1alpha1.SecretReference
		ca, cert, key string
	}{
		{cell.Spec.Credentials.SecretRef, "--ca-file", "--client-cert-file", "--client-key-file"},
		{cell.Spec.Etcd.SecretRef, "--etcd-ca-file", "--etcd-cert-file", "--etcd-key-file"},
	} {
		secret, err := w.hub.CoreV1().Secrets(given.ref.Namespace).Get(w.Context(), given.ref.Name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		content := maps.Clone(secret.Data)
		if given.ref == cell.Spec.Credentials.SecretRef {
			content[corev1.ServiceAccountRootCAKey] = cell.Spec.Endpoint.CABundle
		}
		for _, flag := range []struct{ name, key string }{{given.ca, corev1.ServiceAccountRootCAKey}, {given.cert, corev1.TLSCertKey}, {given.key, corev1.TLSPrivateKeyKey}} {
			file := filepath.Join(w.TempDir(), flag.key)
			if err := os.WriteFile(file, content[flag.key], 0o600); err != nil {
				w.Fatal(err)
			}
			args = append(args, flag.name, file)
		}
		if err := w.hub.CoreV1().Secrets(given.ref.Namespace).Delete(w.Context(), given.ref.Name, metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	w.runRefused("--etcd-key-file is missing", args[:len(args)-2]...)
	w.runChange(args...)
}

// forget deletes the Cell of a cell that has left, and returns it.
func (w *world) forget(name string) *v1alpha1.Cell {
	w.Helper()
	var cell v1alpha1.Cell
	if err := json.Unmarshal([]byte(w.run("kubectl", "--context", "hub", "get", "cell", name, "-o", "json")), &cell); err != nil {
		w.Fatal(err)
	}
	w.run("kubectl", "--context", "hub", "delete", "cell", name)
	return &cell
}

// addByManifests lets a cell join that the hub does not know, with kubectl only: a Cell with its Secrets, and an edited CellTopology. The
// API server of the cell starts while the change is running.
func (w *world) addByManifests(name string) {
	w.Helper()
	w.signal(name+"/kube-apiserver", "halt")
	cell := w.forget(name)
	items := []any{&v1alpha1.Cell{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cell"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cell.Spec}}
	for _, ref := range []v1alpha1.SecretReference{cell.Spec.Credentials.SecretRef, cell.Spec.Etcd.SecretRef} {
		secret, err := w.hub.CoreV1().Secrets(ref.Namespace).Get(w.Context(), ref.Name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		items = append(items, &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}, Type: secret.Type, Data: secret.Data,
		})
		if err := w.hub.CoreV1().Secrets(ref.Namespace).Delete(w.Context(), ref.Name, metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	w.apply(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	topology := w.topology(w.Context())
	spec := topology.Spec
	spec.Cells = append(spec.Cells, v1alpha1.TopologyCell{Name: name, Weight: 1, State: v1alpha1.CellStateIn})
	w.apply(&v1alpha1.CellTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CellTopology"},
		ObjectMeta: metav1.ObjectMeta{Name: topology.Name}, Spec: spec,
	})
	w.waitSettledCondition(metav1.ConditionFalse, "Blocked", "cell "+name)
	w.signal(name+"/kube-apiserver", "resurrect")
	// The change ends by itself: the hub manager makes the cell Normal and then reports a stable topology.
	for _, wanted := range []string{`{.spec.cells[?(@.name=="` + name + `")].state}=Normal`, `{.status.phase}=Stable`} {
		w.run("kubectl", "--context", "hub", "wait", "celltopology/"+topology.Name, "--for=jsonpath="+wanted, "--timeout=4m")
	}
}

// apply applies a manifest to the hub with kubectl.
func (w *world) apply(manifest any) {
	w.Helper()
	content, err := json.Marshal(manifest)
	if err != nil {
		w.Fatal(err)
	}
	file := filepath.Join(w.TempDir(), "manifest.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		w.Fatal(err)
	}
	w.run("kubectl", "--context", "hub", "apply", "--server-side", "--force-conflicts", "-f", file)
}
