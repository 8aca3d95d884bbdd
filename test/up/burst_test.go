package up

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/testenv"
)

// TestBurst runs the example of docs/scheduling.md with two nodes in each member: both regions have capacity for eight
// replicas of docs/examples/burst.yaml, and the cloud can grow.
func TestBurst(t *testing.T) {
	const example = "../../docs/examples/burst.yaml"
	p := newPlace(t)
	p.run("up", "--cells", "1", "--members", "2", "--nodes", "2")

	until := func(what string, args ...string) {
		t.Helper()
		testenv.Eventually(t, strings.Join(args, " ")+" prints "+what, func(ctx context.Context) (bool, error) {
			output, err := p.command(ctx, args...).CombinedOutput()
			return err == nil && strings.Contains(string(output), what), errors.New(string(output))
		})
	}
	// A simulation creates nothing. It is correct once the hub has seen the nodes.
	until("Decision: member1:8  member2:4\n", "schedule", "simulate", "-f", example, "--replicas", "12")
	p.refused("NotFound", "kubectl", "get", "deployment", "render")

	p.run("kubectl", "apply", "-f", example)
	until("Runs in: member1:8  member2:22\n", "schedule", "explain", "deploy/render")
	until(`22 replicas burst into the elastic site "cloud"`, "kubectl", "get", "events")
	p.testTop()
	p.run("kubectl", "scale", "deployment/render", "--replicas=6")
	until("Runs in: member1:6\n", "schedule", "explain", "deploy/render")
	p.run("kubectl", "scale", "deployment/render", "--replicas=10")
	until("Runs in: member1:8  member2:2\n", "schedule", "explain", "deploy/render")
	p.run("kubectl", "rollout", "status", "deployment/render", "--timeout", "3m")
	if pods := p.run("kubectl", "--context", "member2", "get", "pods", "-l", "app=render"); strings.Count(pods, " Running ") != 2 {
		t.Errorf("member2 has these pods:\n%s", pods)
	}
}

// testTop expects that the gateway tells what the pods and nodes of both members use: member1 has no room for more than eight pods.
func (p place) testTop() {
	for what, wanted := range map[string]func(output string) bool{
		"pods": func(output string) bool { return strings.Count(output, "render-") > 8 },
		"nodes": func(output string) bool {
			return strings.Contains(output, "member1-node-1 ") && strings.Contains(output, "member2-node-1 ") && !strings.Contains(output, "unknown")
		},
	} {
		testenv.Eventually(p.T, "kubectl top shows the "+what+" of both members", func(ctx context.Context) (bool, error) {
			output, err := p.command(ctx, "kubectl", "top", what).CombinedOutput()
			return err == nil && wanted(string(output)), errors.New(string(output))
		})
	}
}
