package up

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cellplane/cellplane/internal/testenv"
)

// testRollouts takes a Deployment and a StatefulSet through all commands of kubectl rollout.
func (p place) testRollouts() {
	for _, workload := range []string{"deployment/web", "statefulset/db"} {
		rollout := func(want, command string, flags ...string) {
			p.Helper()
			args := slices.Concat([]string{"kubectl", "-n", "demo", "rollout", command, workload}, flags)
			if output := p.run(args...); !strings.Contains(output, want) {
				p.Errorf("cellplane %s prints %q, want %q", strings.Join(args, " "), output, want)
			}
		}
		update := func(image string) { p.run("kubectl", "-n", "demo", "set", "image", workload, "*="+image) }
		p.untilHistory(workload, "1")
		update("nginx:2")
		p.untilHistory(workload, "1", "2")
		rollout("nginx:2", "history", "--revision", "2")
		rollout("restarted", "restart")
		p.untilHistory(workload, "1", "2", "3")
		rollout("rolled back", "undo")
		p.untilHistory(workload, "1", "3", "4")
		rollout("rolled back", "undo", "--to-revision", "1")
		p.untilHistory(workload, "3", "4", "5")
		if workload == "deployment/web" {
			rollout("paused", "pause")
			update("nginx:3")
			p.refused("cannot rollback a paused deployment", "kubectl", "-n", "demo", "rollout", "undo", workload)
			rollout("resumed", "resume")
			p.untilHistory(workload, "3", "4", "5", "6")
			rollout("rolled back", "undo")
		}
		rollout("", "status", "--timeout", "2m")
		if image := p.run("kubectl", "--context", "member1", "-n", "demo", "get", workload, "-o", "jsonpath={.spec.template.spec.containers[0].image}"); image != "nginx" {
			p.Errorf("%s has the image %s in member1, want that of the first revision", workload, image)
		}
	}
	const revisions = "cellplane.io/revision-of"
	if sets := p.run("kubectl", "-n", "demo", "get", "replicasets", "-l", revisions, "--no-headers"); strings.Count(sets, "\n") != 4 || strings.Count(sets, " 0 ") != 12 {
		p.Errorf("the revisions of the Deployment are\n%s", sets)
	}
	if copies := p.run("kubectl", "--context", "member1", "-n", "demo", "get", "replicasets,controllerrevisions", "-l", revisions, "-o", "name"); copies != "" {
		p.Errorf("member1 has revisions of the federation: %s", copies)
	}
}

// untilHistory waits until kubectl rollout history shows these revisions.
func (p place) untilHistory(workload string, want ...string) {
	p.Helper()
	testenv.Eventually(p.T, workload+" has the revisions "+strings.Join(want, ", "), func(ctx context.Context) (bool, error) {
		output, _ := p.command(ctx, "kubectl", "-n", "demo", "rollout", "history", workload).CombinedOutput()
		var got []string
		for line := range strings.Lines(string(output)) {
			if number, _, _ := strings.Cut(line, " "); number != "" && strings.Trim(number, "0123456789") == "" {
				got = append(got, number)
			}
		}
		return slices.Equal(got, want), errors.New(string(output))
	})
}
