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
	p.testRolloutCommands()
}

// testRolloutCommands stops an update with cellplane rollout, looks at it, lets it go on, and undoes it.
func (p place) testRolloutCommands() {
	p.Helper()
	const web = "deploy/web"
	rollout := func(code int, want, command, workload string, flags ...string) {
		p.Helper()
		args := slices.Concat([]string{"rollout", command, workload, "-n", "demo"}, flags)
		cmd := p.command(p.Context(), args...)
		output, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(output), want) {
			p.Errorf("cellplane %s ends with exit code %d (%v) and prints %q, want %d and %q", strings.Join(args, " "), got, err, output, code, want)
		}
	}
	rollout(0, "Deployment demo/web: paused", "pause", web)
	rollout(0, "Deployment demo/web: is already paused", "pause", web)
	p.run("kubectl", "-n", "demo", "set", "image", "deployment/web", "*=nginx:4")
	rollout(2, "0 of 2 updated", "status", web, "--watch=false")
	rollout(2, `"done": false`, "status", web, "-o", "json")
	rollout(1, "Deployment demo/web has not finished after 1s: member1 ", "status", web, "--timeout", "1s")
	rollout(1, "no stage waits for approval", "approve", web)
	rollout(1, "the update has not failed", "approve", web, "--despite-failure")
	rollout(1, "cannot rollback a paused deployment", "undo", web)
	rollout(0, "Deployment demo/web: resumed", "resume", web)
	rollout(0, "Deployment demo/web: is not paused", "resume", web)
	rollout(0, "member1: 2 of 2 updated, 2 available: done\n", "status", web, "--timeout", "2m")
	rollout(0, `"done": true`, "status", web, "-o", "json")
	rollout(0, "REVISION", "history", web)
	rollout(0, "rolled back", "undo", web)
	rollout(1, "only Deployments can be paused, not a StatefulSet", "pause", "sts/db")
	rollout(1, "not found", "status", "deploy/nothing")
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
