package rollout

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// A kind that is not built in is described by an interpreter: it reads what an object says about its rollout, and writes a grant to it. What a Work tells its
// cluster has to be known without the interpreter, so the whole command is in the annotation of its manifest, also that of the first command.

// InterpretedKind returns the kind of a workload by what its template says about its rollout.
func InterpretedKind(template *configv1alpha1.WorkloadRollout) Kind {
	if template.MaxSurge == nil {
		return InterpretedInPlace
	}
	return Interpreted
}

// InterpretedBounds resolves the bounds of a template for a number of replicas in all clusters. They are rounded as those of a Deployment are.
func InterpretedBounds(template *configv1alpha1.WorkloadRollout, replicas int) (Bounds, error) {
	none, surge, unavailable := intstr.FromInt32(0), template.MaxSurge, template.MaxUnavailable
	if surge == nil {
		surge = &none
	}
	if unavailable == nil {
		unavailable = &none
	}
	return DeploymentBounds(replicas, surge, unavailable)
}

// InterpretedCopy returns what a manifest asks for, by what it says about its rollout. Its pod template has to be in spec.template.
func InterpretedCopy(manifest *unstructured.Unstructured, says *configv1alpha1.WorkloadRollout) (*Copy, error) {
	if PodTemplateOf(manifest) == "" {
		return nil, fmt.Errorf("its rollouts are interpreted, but it has no pod template in spec.template")
	}
	c, err := interpretedCopy(says)
	if err != nil {
		return nil, err
	}
	c.Seq, c.Command.Revision = 1, RevisionOf(manifest)
	return c, nil
}

func interpretedCopy(says *configv1alpha1.WorkloadRollout) (*Copy, error) {
	bounds, err := InterpretedBounds(says, int(says.Replicas))
	if err != nil {
		return nil, err
	}
	return &Copy{Command: Command{Replicas: bounds.Replicas, Surge: bounds.Surge, Unavailable: bounds.Unavailable, Paused: says.Paused}}, nil
}

// InterpretedLive returns a workload in a member, by what it says about its rollout.
func InterpretedLive(obj *unstructured.Unstructured, says *configv1alpha1.WorkloadRollout) (*Live, error) {
	c, err := interpretedCopy(says)
	if err != nil {
		return nil, err
	}
	if least := min(says.Pods, says.Updated, says.Available, says.Terminating); least < 0 {
		return nil, fmt.Errorf("a number of pods is %d; it cannot be negative", least)
	}
	c.Seq, c.Command.Revision = parseMark(obj.GetAnnotations()[names.RolloutCommandAnnotation])
	version, _ := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	return &Live{Copy: *c, Stuck: says.Failed, Observation: Observation{
		Version: version, Seq: c.Seq, Revision: c.Command.Revision,
		Current: says.ObservedGeneration == obj.GetGeneration() && obj.GetDeletionTimestamp() == nil,
		Pods:    int(says.Pods), Available: int(says.Available), Updated: int(says.Updated), Terminating: int(says.Terminating),
		Remaining: max(0, int(says.Pods-says.Updated)),
	}}, nil
}

// Grant returns what a command lets its cluster do, for the interpreter to write it.
func (c *Command) Grant() configv1alpha1.RolloutGrant {
	return configv1alpha1.RolloutGrant{
		Replicas: int32(c.Replicas), MaxSurge: int32(c.Surge), MaxUnavailable: int32(c.unavailable()), Paused: c.Paused, //nolint:gosec // an API has them as int32
	}
}

// Mark returns a manifest with its whole command in the annotation.
func (e *Entry) Mark(manifest *unstructured.Unstructured) *unstructured.Unstructured {
	return withMark(manifest, markOf(e.Seq, &e.Command))
}

// markOf writes a whole command. [parseMark] reads its beginning, and [markedCopy] all of it.
func markOf(seq int64, c *Command) string {
	return fmt.Sprintf("%d/%s/%d/%d/%d/%t", max(1, seq), c.Revision, c.Replicas, c.Surge, c.Unavailable, c.Paused)
}

// markedCopy reads the whole command that a manifest carries, nil if it carries none.
func markedCopy(manifest *unstructured.Unstructured) *Copy {
	fields := strings.Split(manifest.GetAnnotations()[names.RolloutCommandAnnotation], "/")
	if len(fields) != 6 {
		return nil
	}
	var numbers [3]int
	for i := range numbers {
		n, err := strconv.ParseInt(fields[2+i], 10, 32)
		if err != nil || n < 0 {
			return nil
		}
		numbers[i] = int(n)
	}
	seq, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || seq < 1 {
		return nil
	}
	return &Copy{Seq: seq, Command: Command{Revision: fields[1], Replicas: numbers[0], Surge: numbers[1], Unavailable: numbers[2], Paused: fields[5] == "true"}}
}
