package multicluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/slots"
)

// writers is how many Works of a Service are written at once.
const writers = 16

// writeAll writes the Works of manifests, adds them to those that are needed, and returns how many were written. Errors are in the order of the
// manifests, so that the same failure has the same message.
func (m *Controller) writeAll(ctx context.Context, s *share, wanted []manifest, needed map[cell.Key]bool) (int, error) {
	var group errgroup.Group
	group.SetLimit(writers)
	var count atomic.Int64
	errs := make([]error, len(wanted))
	for i := range wanted {
		key := workKey(&wanted[i])
		needed[key] = true
		group.Go(func() error {
			written, err := m.write(ctx, s, key, &wanted[i])
			if errs[i] = err; written {
				count.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return int(count.Load()), errors.Join(errs...)
}

func workKey(w *manifest) cell.Key {
	return cell.Key{Namespace: names.ExecutionNamespace(w.cluster), Name: names.WorkName(w.object.GetKind(), w.object.GetNamespace(), w.object.GetName())}
}

// workID returns the permanent ID of a Work. It stays the same when the Service moves to another cell, whose engine then takes over the object in the
// member.
func workID(s *share, key cell.Key) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(string(s.owner)+"/"+key.String())).String()
}

// write creates or updates the Work of a manifest, and reports whether it did.
func (m *Controller) write(ctx context.Context, s *share, key cell.Key, wanted *manifest) (bool, error) {
	now := m.cell.Works.Get(key)
	if now != nil {
		if of, shared := now.Service(); !shared || of != s.service {
			return false, fmt.Errorf("cluster %s has a %s %s of another template; rename that", wanted.cluster, wanted.object.GetKind(), wanted.object.GetName())
		}
		if now.Deleting || now.Frozen {
			return false, nil // its deletion enqueues the Service
		}
	}
	if now == nil {
		return true, m.create(ctx, s, key, wanted, false)
	}
	work, stamped, err := m.workOf(s, key, wanted)
	if err != nil {
		return false, err
	}
	if now.Digest == cell.WorkDigest(work.Labels, nil, false, nil, []cell.Object{cell.DescribeManifest(stamped)}) {
		return false, nil
	}
	_, err = m.cell.UpdateWork(ctx, now, work)
	return true, err
}

// create creates the Work of a manifest.
func (m *Controller) create(ctx context.Context, s *share, key cell.Key, wanted *manifest, suspended bool) error {
	work, _, err := m.workOf(s, key, wanted)
	if err != nil {
		return err
	}
	if suspended {
		work.Spec.SuspendDispatching = ptr.To(true)
	}
	if err := m.cell.EnsureNamespace(ctx, key.Namespace); err != nil {
		return err
	}
	_, err = m.cell.CreateWork(ctx, work)
	return err
}

// workOf returns the Work of a manifest, and the manifest with our labels and annotations.
func (m *Controller) workOf(s *share, key cell.Key, wanted *manifest) (*workv1alpha1.Work, *unstructured.Unstructured, error) {
	id := workID(s, key)
	stamped := merge.Stamp(wanted.object, merge.Marks{WorkNamespace: key.Namespace, WorkName: key.Name, WorkID: id, TemplateUID: s.owner, Cell: m.cell.Name})
	raw, err := stamped.MarshalJSON()
	if err != nil {
		return nil, nil, fmt.Errorf("encoding %s %s: %w", wanted.object.GetKind(), wanted.object.GetName(), err)
	}
	work := &workv1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Finalizers: []string{names.ExecutionFinalizer},
			Labels: s.workLabels(wanted, id, slots.Of(s.service.Namespace, s.service.Name).String()),
		},
		Spec: workv1alpha1.WorkSpec{Workload: workv1alpha1.WorkloadTemplate{Manifests: []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw, Object: stamped}}}}},
	}
	if wanted.provider != "" {
		work.Annotations = map[string]string{names.ProvisionClusterAnnotation: wanted.provider}
	}
	return work, stamped, nil
}
