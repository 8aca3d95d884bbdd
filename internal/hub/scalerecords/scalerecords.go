// Package scalerecords removes records of scale-downs that no window of a ProtectionPolicy can need any more. Gateways write such a record, a ConfigMap for
// each protected object, and nothing else removes it: neither when its window ends nor when its object is deleted or moves to another cell.
package scalerecords

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
)

const (
	// Interval is how often records are looked through.
	Interval = 10 * time.Minute
	// margin is for clocks that differ.
	margin = time.Hour
	// longestWindow is assumed for records that do not say when they end.
	longestWindow = 30 * 24 * time.Hour
	// page bounds how many records are in memory at once.
	page = 500
)

// Sweeper removes expired records from control planes.
type Sweeper struct {
	// Planes returns clients of the hub and the reachable cells. They must not be cached.
	Planes func(ctx context.Context) map[string]client.Client
}

// Run removes expired records until the context ends.
func (s *Sweeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for name, plane := range s.Planes(ctx) {
			if err := Sweep(ctx, plane, time.Now()); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(1).Info("removing expired records of scale-downs failed, will retry", "in", name, "err", err.Error())
			}
		}
	}
}

// Sweep removes the expired records of one control plane. A record that a gateway changes meanwhile stays.
func Sweep(ctx context.Context, plane client.Client, now time.Time) error {
	var list corev1.ConfigMapList
	for {
		options := []client.ListOption{client.InNamespace(names.SystemNamespace), client.Limit(page), client.Continue(list.Continue)}
		if err := plane.List(ctx, &list, options...); err != nil {
			return fmt.Errorf("listing records of scale-downs: %w", err)
		}
		for i := range list.Items {
			record := &list.Items[i]
			if !expired(record, now) {
				continue
			}
			err := plane.Delete(ctx, record, client.Preconditions{UID: &record.UID, ResourceVersion: ptr.To(record.ResourceVersion)})
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return fmt.Errorf("removing the record %s: %w", record.Name, err)
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// expired reports whether an object is a record that has ended. A record that cannot be understood is kept.
func expired(record *corev1.ConfigMap, now time.Time) bool {
	if !strings.HasPrefix(record.Name, names.ScaleDownRecordPrefix) {
		return false
	}
	if text := record.Data[names.ScaleDownRecordExpires]; text != "" {
		end, err := time.Parse(time.RFC3339, text)
		return err == nil && now.After(end.Add(margin))
	}
	var drops []struct {
		Time time.Time `json:"time"`
	}
	if json.Unmarshal([]byte(record.Data[names.ScaleDownRecordDrops]), &drops) != nil || len(drops) == 0 {
		return false
	}
	for _, drop := range drops {
		if !now.After(drop.Time.Add(longestWindow + margin)) {
			return false
		}
	}
	return true
}
