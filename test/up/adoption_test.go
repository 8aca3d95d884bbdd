package up

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cellplane/cellplane/internal/testenv"
)

// testAdoption adopts a Deployment that runs in the member, with what it needs. Its pods stay, and also after it is released.
func (p place) testAdoption() {
	inMember := func(args ...string) string {
		return p.run(append([]string{"kubectl", "--context", "member1", "-n", "legacy"}, args...)...)
	}
	inMember("create", "namespace", "legacy")
	manifest := filepath.Join(p.TempDir(), "legacy.yaml")
	if err := os.WriteFile(manifest, []byte(legacy), 0o600); err != nil {
		p.Fatal(err)
	}
	inMember("apply", "-f", manifest)
	inMember("rollout", "status", "deployment/web", "--timeout", "2m")
	identities := func() string {
		return inMember("get", "replicasets,pods,services", "-o", "jsonpath={range .items[*]}{.metadata.uid}{.spec.ports} {end}")
	}
	before := identities()
	if len(strings.Fields(before)) != 4 {
		p.Fatalf("member1 has these ReplicaSets, pods and Services: %s", before)
	}
	const unchanged = "\n  member1: no change\n"
	for _, step := range []struct {
		command string
		want    []string
	}{
		{"adopt plan", []string{"4 can be adopted, 0 cannot, 0 are managed already"}},
		{"adopt diff", []string{"Deployment legacy/web" + unchanged, "Service legacy/web" + unchanged, "Secret legacy/key" + unchanged, "ServiceAccount legacy/robot" + unchanged}},
		{"promote service web -C member1", []string{"Service legacy/web is promoted.\n"}},
		{"promote service web -C member1", []string{"Service legacy/web is managed already.\n"}},
		{"adopt apply", []string{"Deployment legacy/web: adopted\n", "Service legacy/web: managed already\n", "Secret legacy/key: adopted\n", "ServiceAccount legacy/robot: adopted\n"}},
		{"adopt apply", []string{"Deployment legacy/web: managed already\n", "ServiceAccount legacy/robot: managed already\n"}},
		{"adopt plan", []string{"0 can be adopted, 0 cannot, 4 are managed already"}},
	} {
		output := p.run(append(strings.Fields(step.command), "-n", "legacy")...)
		for _, want := range step.want {
			if !strings.Contains(output, want) {
				p.Errorf("%s prints %q, want %q", step.command, output, want)
			}
		}
	}
	p.run("kubectl", "-n", "legacy", "rollout", "status", "deployment/web", "--timeout", "2m")
	if after := identities(); after != before {
		p.Errorf("member1 had %s and has %s", before, after)
	}
	p.testSharedAdoption(inMember)
	p.testEntry(inMember)
	released := p.run("adopt", "release", "-n", "legacy")
	for _, object := range []string{"Deployment legacy/web", "Service legacy/web", "Secret legacy/key", "ServiceAccount legacy/robot"} {
		if !strings.Contains(released, object+": released\n") {
			p.Errorf("adopt release does not release %s:\n%s", object, released)
		}
	}
	if left := inMember("get", "deployments,services,secrets,serviceaccounts", "-o", "yaml", "--show-managed-fields"); strings.Contains(left, "karmada.io") || strings.Contains(left, "cellplane") {
		p.Errorf("member1 still has marks of the federation:\n%s", left)
	}
	testenv.Eventually(p.T, "nothing is left in the federation", func(context.Context) (bool, error) { // policies go after their copies in cells
		left := p.run("kubectl", "-n", "legacy", "get", "deployments,propagationpolicies,overridepolicies", "-o", "name")
		return left == "", errors.New(left)
	})
	if after := identities(); after != before {
		p.Errorf("member1 had %s and has %s after the release", before, after)
	}
	p.run("kubectl", "delete", "namespace", "legacy", "--timeout", "2m")
	inMember("delete", "namespace", "legacy", "--timeout", "2m")
}

// testSharedAdoption adopts a cluster-scoped object, compares it, and releases it. It stays the same.
func (p place) testSharedAdoption(inMember func(args ...string) string) {
	p.Helper()
	inMember("create", "clusterrole", "legacy-reader", "--verb=get", "--resource=configmaps")
	inMember("label", "clusterrole", "legacy-reader", "app=legacy")
	read := func() string {
		return inMember("get", "clusterrole", "legacy-reader", "-o", "jsonpath={.metadata.uid} {.rules} {.metadata.labels} {.metadata.annotations}")
	}
	before := read()
	for _, step := range [][]string{
		{"plan", "1 can be adopted, 0 cannot, 0 are managed already"}, {"diff", "ClusterRole legacy-reader\n  member1: no change\n"}, {"apply", "ClusterRole legacy-reader: adopted\n"},
		{"diff", "ClusterRole legacy-reader\n  managed already\n  member1: no change\n"}, {"release", "ClusterRole legacy-reader: released\n"},
	} {
		output := p.run("adopt", step[0], "-n", "legacy", "--resource", "clusterroles", "-l", "app=legacy")
		if !strings.Contains(output, step[1]) {
			p.Errorf("adopt %s prints %q, want %q", step[0], output, step[1])
		}
		if step[0] == "apply" && !strings.Contains(read(), "karmada.io/managed") {
			p.Errorf("the federation does not manage the ClusterRole in member1: %s", read())
		}
	}
	if after := read(); after != before {
		p.Errorf("member1 had the ClusterRole %s and has %s", before, after)
	}
	testenv.Eventually(p.T, "no ClusterRole and no policy of it is left", func(context.Context) (bool, error) {
		left := p.run("kubectl", "get", "clusterroles,clusterpropagationpolicies", "-o", "name")
		return !strings.Contains(left, "legacy-reader"), errors.New(left)
	})
	inMember("delete", "clusterrole", "legacy-reader")
}

// testEntry takes the adopted Deployment out of the federation's hands, changes it in the member, and keeps one change and discards another.
func (p place) testEntry(inMember func(args ...string) string) {
	p.Helper()
	entry := func(args ...string) string {
		return p.run(append([]string{"entry", args[0], "deploy/web", "-n", "legacy", "--cluster", "member1"}, args[1:]...)...)
	}
	limit := func() string {
		return inMember("get", "deployment", "web", "-o", "jsonpath={.spec.revisionHistoryLimit}")
	}
	p.refused(`cluster member1 does not have the kind "deplyo"`, "entry", "open", "deplyo/web", "-n", "legacy", "--cluster", "member1")
	entry("open", "--for", "2h", "--reason", "repair")
	inMember("patch", "deployment", "web", "--type=merge", "-p", `{"spec":{"revisionHistoryLimit":3}}`)
	p.run("kubectl", "-n", "legacy", "wait", "deployment/web", "--for=condition=EntryOpen", "--timeout", "1m")
	if list := p.run("entry", "list"); !strings.Contains(list, "Deployment legacy/web") || !strings.Contains(list, "repair") {
		p.Errorf("entry list prints:\n%s", list)
	}
	if kept := entry("close", "--keep"); !strings.Contains(kept, "keeps spec.revisionHistoryLimit") {
		p.Errorf("entry close --keep prints:\n%s", kept)
	}
	p.refused("is not open", "entry", "close", "deploy/web", "-n", "legacy", "--cluster", "member1", "--discard")
	entry("open")
	inMember("patch", "deployment", "web", "--type=merge", "-p", `{"spec":{"revisionHistoryLimit":4}}`)
	entry("close", "--discard")
	testenv.Eventually(p.T, "the federation sets back what was discarded, and keeps what was kept", func(context.Context) (bool, error) {
		now := limit()
		return now == "3", errors.New(now)
	})
}
