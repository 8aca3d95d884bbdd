package up

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cellplane/cellplane/internal/testenv"
)

// saved is what testSave has saved, and how things were.
type saved struct {
	set   string
	pods  string
	epoch string
}

// workloads are placed before a set is saved. One is changed and one is deleted after it.
const workloads = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: default}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: changed, namespace: default}
spec:
  selector: {matchLabels: {app: changed}}
  template:
    metadata: {labels: {app: changed}}
    spec: {containers: [{name: main, image: "nginx:1"}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: deleted, namespace: default}
spec:
  selector: {matchLabels: {app: deleted}}
  template:
    metadata: {labels: {app: deleted}}
    spec: {containers: [{name: main, image: "nginx:1"}]}
`

// testSave saves a set, and then changes, deletes and creates objects, in the federation and so in the cluster.
func (p place) testSave() saved {
	manifest := filepath.Join(p.TempDir(), "workloads.yaml")
	if err := os.WriteFile(manifest, []byte(workloads), 0o600); err != nil {
		p.Fatal(err)
	}
	p.run("kubectl", "apply", "-f", manifest)
	for _, name := range []string{"changed", "deleted"} {
		p.run("kubectl", "rollout", "status", "deployment/"+name, "--timeout", "2m")
	}
	s := saved{epoch: p.epoch()}
	output := p.run("snapshot", "save", "--keep", "2")
	_, rest, _ := strings.Cut(output, "Saved ")
	s.set, _, _ = strings.Cut(rest, ": 2 stores")
	if output := p.run("snapshot", "list"); !strings.Contains(output, filepath.Base(s.set)) {
		p.Errorf("the list does not have %s:\n%s", s.set, output)
	}
	if output := p.run("snapshot", "verify", s.set); !strings.Contains(output, "is complete: 2 stores") {
		p.Errorf("snapshot verify prints %q", output)
	}
	p.refused("the federation is up: stop it with `cellplane down` first", "restore", s.set)
	p.refused("is not a set of snapshots", "restore", p.dir)
	p.refused("--data-dir needs --store", "restore", s.set, "--data-dir", p.dir)

	p.run("kubectl", "delete", "configmap", "kept")
	p.run("kubectl", "create", "configmap", "later")
	p.run("kubectl", "create", "namespace", "later")
	p.run("kubectl", "set", "image", "deployment/changed", "main=nginx:2")
	p.run("kubectl", "delete", "deployment", "deleted")
	p.run("kubectl", "create", "deployment", "late", "--image", "nginx:1")
	p.run("kubectl", "rollout", "status", "deployment/late", "--timeout", "2m")
	p.run("kubectl", "rollout", "status", "deployment/changed", "--timeout", "2m")
	p.run("kubectl", "--context", "member1", "wait", "deployment/deleted", "--for=delete", "--timeout", "2m")
	s.pods = p.run("kubectl", "--context", "member1", "get", "pods", "-l", "app=late", "-o", "name")
	return s
}

// testRestored expects that the federation, which has been restored and started again, is as it was when it was saved, and that the cluster follows.
func (p place) testRestored(s saved) {
	p.run("kubectl", "get", "configmap", "kept")
	p.refused("NotFound", "kubectl", "get", "configmap", "later")
	testenv.Eventually(p.T, "the namespace that was created later is gone from the cell", func(ctx context.Context) (bool, error) {
		output, _ := p.command(ctx, "kubectl", "--context", "cell-a", "get", "namespace", "later").CombinedOutput()
		return strings.Contains(string(output), "NotFound"), errors.New(string(output))
	})
	testenv.Eventually(p.T, "the cluster has what was saved", func(ctx context.Context) (bool, error) {
		output, err := p.command(ctx, "kubectl", "--context", "member1", "get", "deployments", "changed", "deleted", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.spec.template.spec.containers[0].image} {.status.readyReplicas};{end}`).CombinedOutput()
		return err == nil && string(output) == "changed nginx:1 1;deleted nginx:1 1;", errors.New(string(output))
	})
	if pods := p.run("kubectl", "--context", "member1", "get", "pods", "-l", "app=late", "-o", "name"); pods != s.pods {
		p.Errorf("what the federation does not know any more has pods %q, and had %q", pods, s.pods)
	}
	if epoch := p.epoch(); len(epoch) <= len(s.epoch) {
		p.Errorf("the epoch is %s, and was %s", epoch, s.epoch)
	}
	if output := p.run("cells", "verify"); !strings.Contains(output, " 0 problems") {
		p.Errorf("cells verify prints %q", output)
	}
	p.run("kubectl", "set", "image", "deployment/changed", "main=nginx:3")
	p.run("kubectl", "rollout", "status", "deployment/changed", "--timeout", "2m")
	if images := p.run("kubectl", "--context", "member1", "get", "deployment", "changed", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); images != "nginx:3" {
		p.Errorf("the cluster has image %s", images)
	}
}

func (p place) epoch() string {
	p.Helper()
	return p.run("kubectl", "--context", "hub", "get", "celltopology", "default", "-o", "jsonpath={.metadata.generation}")
}
