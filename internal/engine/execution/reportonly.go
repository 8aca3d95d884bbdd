package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/merge"
)

// Comparison says how the objects of a Work that is only reported about differ from what the federation wants.
type Comparison struct {
	// Status of the condition Differs, and its reason.
	Status metav1.ConditionStatus
	Reason string
	// Message has a first line without values, and then a line for each field.
	Message string
}

// FirstLine returns the part of the message that has no values.
func (c *Comparison) FirstLine() string {
	line, _, _ := strings.Cut(c.Message, "\n")
	return line
}

// Condition returns the condition of a Work of this generation.
func (c *Comparison) Condition(generation int64) metav1.Condition {
	return metav1.Condition{Type: names.Differs, Status: c.Status, ObservedGeneration: generation, Reason: c.Reason, Message: c.Message}
}

// comparisons are the comparisons of Works.
type comparisons struct {
	mu sync.Mutex
	of map[cell.Key]compared
}

type compared struct {
	Comparison
	digest   uint64 // of the Work as it was then
	findings []finding
}

func (c *comparisons) get(work cell.Key) (compared, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.of[work]
	return found, known
}

// current returns the comparison of a Work as it is now, nil if there is none.
func (c *comparisons) current(work *cell.Work) *Comparison {
	if found, known := c.get(work.Key); known && work.ReportOnly && found.digest == work.Digest {
		return &found.Comparison
	}
	return nil
}

// set returns what was there before.
func (c *comparisons) set(work cell.Key, now compared) compared {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.of[work]
	if c.of == nil {
		c.of = map[cell.Key]compared{}
	}
	c.of[work] = now
	return before
}

func (c *comparisons) forget(work cell.Key) (compared, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.of[work]
	delete(c.of, work)
	return before, known
}

// finding is how one object differs.
type finding struct {
	object cell.Object
	// differences are the fields that the federation would change. Instead says what it would do, or could not do, to the whole object.
	differences []difference.Difference
	instead     string
	// detail says more about that, and may quote values; empty if there is nothing to say.
	detail string
	// unknown says why the object could not be compared.
	unknown error
}

func (f *finding) differs() bool { return len(f.differences) > 0 || f.instead != "" }

// count returns the number of differences, for the metric.
func (f *finding) count() int {
	if f.instead != "" {
		return 1
	}
	return len(f.differences)
}

// mostFields is how many fields the first line names, and mostDescribed how many are described.
const (
	mostFields    = 10
	mostDescribed = 20
)

// summary describes the finding without values.
func (f *finding) summary() string {
	about := f.object.String()
	switch {
	case f.unknown != nil:
		return fmt.Sprintf("%s could not be compared: %v", about, f.unknown)
	case f.instead != "":
		return about + " " + f.instead
	}
	var fields []string
	for i := range f.differences[:min(len(f.differences), mostFields)] {
		fields = append(fields, f.differences[i].Field)
	}
	if more := len(f.differences) - len(fields); more > 0 {
		fields = append(fields, fmt.Sprintf("and %d more", more))
	}
	return about + " would change: " + strings.Join(fields, ", ")
}

// summarize returns the comparison that findings make up.
func summarize(findings []finding) Comparison {
	result := Comparison{Status: metav1.ConditionFalse, Reason: names.ReasonWouldNotChange}
	var first, fields []string
	for i := range findings {
		f := &findings[i]
		switch {
		case f.differs():
			result.Status, result.Reason = metav1.ConditionTrue, names.ReasonWouldChange
		case f.unknown == nil:
			continue
		case result.Status != metav1.ConditionTrue:
			result.Status, result.Reason = metav1.ConditionUnknown, names.ReasonNotCompared
		}
		first = append(first, f.summary())
		if f.detail != "" {
			fields = append(fields, f.detail)
		}
		for _, d := range f.differences {
			fields = append(fields, d.Describe(f.object.Kind))
		}
	}
	if len(first) == 0 {
		result.Message = "The federation would change nothing in the member cluster"
		return result
	}
	if more := len(fields) - mostDescribed; more > 0 {
		fields = append(fields[:mostDescribed], fmt.Sprintf("and %d more", more))
	}
	line := strings.ReplaceAll(strings.Join(first, "; "), "\n", " ")
	result.Message = shorten(strings.Join(append([]string{shorten(line)}, fields...), "\n"))
	return result
}

// compareOnly reports how the objects of a Work differ from what the federation wants. It writes nothing to the member.
func (q *memberQueue) compareOnly(ctx context.Context, member *fleet.Member, problem error, work *cell.Work) error {
	findings := make([]finding, len(work.Objects))
	for i := range work.Objects {
		findings[i] = finding{object: work.Objects[i], unknown: problem}
	}
	if problem != nil { // a member that comes back enqueues its Works
		q.compared(work, findings)
		return nil
	}
	fresh, manifests, err := q.manifests(ctx, work)
	if err != nil || fresh == nil {
		return err
	}
	if fresh.Digest != work.Digest {
		return nil // the newer one is in the queue
	}
	var failed []error
	for i := range work.Objects {
		f := &findings[i]
		if f.unknown = q.examine(ctx, member, work, f, manifests[i]); f.unknown != nil {
			failed = append(failed, f.unknown)
		}
	}
	q.compared(work, findings)
	after := q.reportEntries(work, nil)
	if err := errors.Join(failed...); err != nil {
		member.Report(err)
		if fleet.Unreachable(err) && member.Broken() != nil {
			return nil
		}
		return err
	}
	q.e.cell.Manifests.Forget(work.Key) // read again when something changes
	return again(after)
}

// examine finds out how an object differs, by the write that the engine would make, as a dry run.
func (q *memberQueue) examine(ctx context.Context, member *fleet.Member, work *cell.Work, f *finding, manifest []byte) error {
	object := &f.object
	if object.Broken != "" {
		f.instead = "has an invalid manifest: " + object.Broken
		return nil
	}
	desired, err := q.manifest(work, manifest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, served, err := member.Resource(ctx, object.GroupVersionKind, object.Namespace)
	if err != nil {
		return err
	}
	c := q.watch(object.GroupVersionKind)
	c.servedAs(served)
	if observed, _, synced := c.get(object.Key); synced && (observed == nil || observed.Work != work.Key) {
		q.lookOut(object, work.Key) // before it is read, so that no change is missed. When the cache has synced, the Work is reconciled again.
	}
	for range attempts {
		live, err := client.Get(ctx, object.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			q.sawNone(object)
			f.instead = "does not exist and would be created"
			return nil
		}
		if err != nil {
			return describe("reading", object, err)
		}
		if ours(live.GetLabels(), desired.GetLabels()) {
			q.lookAway(object, work.Key)
		} else {
			q.sawUnmarked(object, work.Key, live)
		}
		if err = q.rehearse(ctx, client, f, live, desired); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s changes all the time", object)
}

// rehearse finds out how an object as it was read would change. A conflict means that it has changed since.
func (q *memberQueue) rehearse(ctx context.Context, client dynamic.ResourceInterface, f *finding, live, desired *unstructured.Unstructured) error {
	object := &f.object
	switch {
	case live.GetDeletionTimestamp() != nil:
		f.instead = "is being deleted in the cluster and would be created again"
		return nil
	case mayUpdate(live, desired):
	case isNamespace(desired):
		return nil // it is not ours to change
	default:
		f.instead = "is not managed by the federation and would stay as it is, because conflictResolution is not Overwrite"
		return nil
	}
	if err := checkOrder(object, live, desired); err != nil {
		return err
	}
	merged, changed, err := q.merge(ctx, live, desired)
	if err != nil || !changed {
		return err
	}
	updated, err := client.Update(ctx, merged, metav1.UpdateOptions{FieldManager: merge.FieldManager, DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		f.differences = difference.Between(live, updated)
		return nil
	case mayNotRehearse(err):
		return describe("rehearsing", object, err)
	case refused(err):
		f.instead = fmt.Sprintf("would be refused by the cluster (%s)", apierrors.ReasonForError(err))
		if object.Kind != "Secret" { // it may quote the content
			f.detail = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		return nil
	default:
		return describe("rehearsing", object, err)
	}
}

// mayNotRehearse reports whether an API server refused a dry run because a webhook there may have side effects. It says nothing about the write.
func mayNotRehearse(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// compared records how the objects of a Work differ, for status, events and the metric.
func (q *memberQueue) compared(work *cell.Work, findings []finding) {
	for i := range findings {
		if err := findings[i].unknown; fleet.Unreachable(err) {
			findings[i].unknown = unreachable(err)
		}
	}
	now := compared{Comparison: summarize(findings), digest: work.Digest, findings: findings}
	before := q.e.comparisons.set(work.Key, now)
	q.countDifferences(before.findings, findings)
	for i := range before.findings {
		if was := &before.findings[i].object; !slices.ContainsFunc(work.Objects, func(o cell.Object) bool { return o.GroupVersionKind == was.GroupVersionKind && o.Key == was.Key }) {
			q.lookAway(was, work.Key) // the Work has other objects now
		}
	}
	q.e.changed(work.Key)
	q.forEachSubject(work, func(about *corev1.ObjectReference, _ string) {
		aspect := "differs:" + q.cluster
		switch now.Status {
		case metav1.ConditionTrue:
			q.e.recorder.Failed(about, aspect, names.EventDiffers, "cluster "+q.cluster+": "+now.FirstLine())
		case metav1.ConditionFalse:
			q.e.recorder.Succeeded(about, aspect, names.EventAgrees, "the federation would change nothing in cluster "+q.cluster, false)
		}
	})
}

// stopComparing forgets how the objects of a Work differ: it is gone, or applied.
func (q *memberQueue) stopComparing(work cell.Key) {
	before, known := q.e.comparisons.forget(work)
	if !known {
		return
	}
	q.countDifferences(before.findings, nil)
	for i := range before.findings {
		q.lookAway(&before.findings[i].object, work)
	}
	q.e.changed(work)
}

// countDifferences updates the metric.
func (q *memberQueue) countDifferences(before, now []finding) {
	in := func(f *finding) group { return group{q.cluster, f.object.Kind, f.object.Namespace} }
	for i := range before {
		reportedDifferences.remove(in(&before[i]), before[i].object.Name)
	}
	for i := range now {
		if count := now[i].count(); count > 0 {
			reportedDifferences.set(in(&now[i]), now[i].object.Name, float64(count))
		}
	}
}
