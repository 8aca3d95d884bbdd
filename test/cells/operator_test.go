package cells

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// interrupted runs a command that follows a change which cannot get on, and interrupts it as soon as it has shown how many requests wait.
func (w *world) interrupted(args ...string) {
	w.Helper()
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
	shown := false
	for lines := bufio.NewScanner(stdout); !shown && lines.Scan(); {
		shown = strings.Contains(lines.Text(), "requests held")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		w.Error(err)
	}
	_, _ = io.Copy(io.Discard, stdout)
	err = cmd.Wait()
	var exit *exec.ExitError
	if !shown || !errors.As(err, &exit) || !strings.Contains(stderr.String(), "the change goes on, follow it with `cellplane cells watch`") {
		w.Errorf("cellplane %s was interrupted: %v, has shown how many requests wait: %v, says %q", strings.Join(args, " "), err, shown, stderr.String())
	}
}

// addByFlags lets a cell join of which neither the hub nor this machine's federation knows anything: the operator says how it is reached.
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
	w.refused("--etcd-key-file is missing", args[:len(args)-2]...)
	w.completes(args...)
}

// forget removes the Cell of a cell that has left.
func (w *world) forget(name string) *v1alpha1.Cell {
	w.Helper()
	var cell v1alpha1.Cell
	if err := json.Unmarshal([]byte(w.run("kubectl", "--context", "hub", "get", "cell", name, "-o", "json")), &cell); err != nil {
		w.Fatal(err)
	}
	w.run("kubectl", "--context", "hub", "delete", "cell", name)
	return &cell
}

// tells waits until a part counts at least so much in all samples of a metric that have some labels, "name{label=value,label=value}".
func (w *world) tells(read func(ctx context.Context) ([]byte, error), metric string, least float64) {
	w.Helper()
	name, labels, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	testenv.Eventually(w, fmt.Sprintf("%s is at least %v", metric, least), func(ctx context.Context) (bool, error) {
		text, err := read(ctx)
		if err != nil {
			return false, err
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			return false, err
		}
		sum, found := 0.0, false
		for _, sample := range families[name].GetMetric() {
			if labels == "" || hasLabels(sample, labels) {
				sum, found = sum+sample.GetCounter().GetValue()+sample.GetGauge().GetValue()+float64(sample.GetHistogram().GetSampleCount()), true
			}
		}
		return found && sum >= least, fmt.Errorf("it is %v (%v)", sum, found)
	})
}

func hasLabels(sample *dto.Metric, labels string) bool {
	for want := range strings.SplitSeq(labels, ",") {
		if !slices.ContainsFunc(sample.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == want }) {
			return false
		}
	}
	return true
}

// ofHubManager reads the metrics of the hub manager.
func (w *world) ofHubManager(ctx context.Context) ([]byte, error) {
	var state struct {
		PartPorts map[string]int `json:"partPorts"`
	}
	content, err := os.ReadFile(filepath.Join(w.dir, "federation.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &state); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", state.PartPorts["hub-manager"]), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// ofGateway reads the metrics of the gateway.
func (w *world) ofGateway(ctx context.Context) ([]byte, error) {
	return w.gateway.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
}

// saysOf waits for an event about an object of the hub.
func (w *world) saysOf(kind, name, reason string) {
	w.Helper()
	testenv.Eventually(w, fmt.Sprintf("an event %s tells of %s %s", reason, kind, name), func(ctx context.Context) (bool, error) {
		events, err := w.hub.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason
		}), nil
	})
}

// toldOfChange expects metrics and events to tell of the change that has just been made.
func (w *world) toldOfChange() {
	w.Helper()
	w.tells(w.ofHubManager, "cellplane_rebalance_objects{state=moved}", 1)
	w.tells(w.ofHubManager, "cellplane_rebalance_objects{state=moving}", 0)
	w.tells(w.ofHubManager, "cellplane_rebalance_objects{state=waiting}", 0)
	w.tells(w.ofHubManager, "cellplane_rebalance_steps_total{step=activate}", 1)
	w.tells(w.ofHubManager, "cellplane_topology_phase{phase=Stable}", 1)
	for _, pair := range []string{"cell=cell-a,keeper=cell-b", "cell=cell-b,keeper=cell-a", "cell=cell-c,keeper=cell-a"} {
		w.tells(w.ofHubManager, "cellplane_backup_lag_seconds{"+pair+"}", 1)
	}
	w.tells(w.ofGateway, "cellplane_gateway_held_requests", 0)
	w.tells(w.ofGateway, "cellplane_gateway_held_refused_total", 0)
	for _, reason := range []string{"Moving", "Moved"} {
		w.saysOf("CellTopology", v1alpha1.CellTopologyName, reason)
	}
}

// toldOfLoss expects metrics and events to tell of each phase of a takeover.
func (w *world) toldOfLoss(cell string) {
	w.Helper()
	w.tells(w.ofHubManager, "cellplane_failover_promoted_objects_total{cell="+cell+"}", 1)
	w.tells(w.ofHubManager, "cellplane_failover_phases_total{cell="+cell+",condition=Fenced,reason=IdentityRevoked}", 1)
	w.tells(w.ofHubManager, "cellplane_failover_phases_total{cell="+cell+",condition=Promoted,reason=BackupPromoted}", 1)
	for _, reason := range []string{"IdentityRevoked", "BackupPromoted"} {
		w.saysOf("Cell", cell, reason)
	}
}
