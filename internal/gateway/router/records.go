package router

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/protection"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

const (
	// dropsKey is the key of the drops in a record.
	dropsKey = names.ScaleDownRecordDrops
	// movedFromKey is the key of the last move that a record knows of: what was recorded before it is part of the record.
	movedFromKey = "movedFrom"
	// recordAttempts limits how often a record is rewritten after a conflict with another gateway.
	recordAttempts = 10
)

// Records stores decreases of replicas in a ConfigMap for each object: in its cell, in the namespace of the control plane.
type Records struct{ Objects }

// List returns the drops of an object.
func (s Records) List(ctx context.Context, info *request.RequestInfo, subject protection.Subject) ([]protection.Drop, error) {
	record, err := s.read(ctx, info, subject)
	if err != nil {
		return nil, err
	}
	return dropsIn(record), nil
}

// Add adds a drop, and removes those that are older by more than keep.
func (s Records) Add(ctx context.Context, info *request.RequestInfo, subject protection.Subject, drop protection.Drop, keep time.Duration) error {
	return s.edit(ctx, info, subject, drop.Time.Add(keep), func(drops []protection.Drop) []protection.Drop {
		drops = slices.DeleteFunc(drops, func(old protection.Drop) bool { return !old.Time.After(drop.Time.Add(-keep)) })
		return append(drops, drop)
	})
}

// Collect stores the drops that were recorded before the object moved in its present cell.
func (s Records) Collect(ctx context.Context, info *request.RequestInfo, subject protection.Subject) error {
	if subject.MovedFrom == "" {
		return nil
	}
	return s.edit(ctx, info, subject, time.Time{}, func(drops []protection.Drop) []protection.Drop { return drops })
}

// edit changes a record, which lasts until the given time or as long as the records that it includes, whichever is later.
func (s Records) edit(ctx context.Context, info *request.RequestInfo, subject protection.Subject, expires time.Time, change func([]protection.Drop) []protection.Drop) error {
	for attempt := 1; ; attempt++ {
		record, err := s.read(ctx, info, subject)
		if err != nil {
			return err
		}
		err = s.write(ctx, info, subject, record, change(dropsIn(record)), expires)
		// A record that has ended may be removed at any time.
		if (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)) && attempt < recordAttempts {
			continue
		}
		return err
	}
}

func dropsIn(record *corev1.ConfigMap) []protection.Drop {
	var drops []protection.Drop
	// A record that cannot be decoded was not written by a gateway, and counts as none.
	_ = json.Unmarshal([]byte(record.Data[dropsKey]), &drops)
	return drops
}

func recordName(info *request.RequestInfo, uid string) string {
	sum := sha256.Sum256([]byte(info.APIGroup + "/" + info.Resource + "/" + info.Namespace + "/" + info.Name + "/" + uid))
	return names.ScaleDownRecordPrefix + hex.EncodeToString(sum[:16])
}

const recordsPath = "/api/v1/namespaces/" + names.SystemNamespace + "/configmaps"

// read returns the record of an object, or an empty one. If the object has moved since the record was written, it includes what was
// recorded elsewhere. Nothing was recorded elsewhere for an object that never moved, so other cells may be down.
func (s Records) read(ctx context.Context, info *request.RequestInfo, subject protection.Subject) (*corev1.ConfigMap, error) {
	record := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: recordName(info, subject.UID)},
	}
	data, err := s.send(ctx, info, http.MethodGet, recordsPath+"/"+record.Name, nil)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(data, record); err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("decoding the scale-down record %s: %w", record.Name, err))
		}
	}
	if subject.MovedFrom == "" || record.Data[movedFromKey] == subject.MovedFrom {
		return record, nil
	}
	return record, s.addElsewhere(ctx, info, record)
}

// addElsewhere adds the drops that are recorded in other cells. Records do not move with their objects; the next write stores all drops in
// the object's cell.
func (s Records) addElsewhere(ctx context.Context, info *request.RequestInfo, record *corev1.ConfigMap) error {
	c := &call{RequestInfo: info, view: s.Topology.View(), placement: s.place(ctx, info)}
	if c.placement == placement.OnHub || c.view == nil {
		return nil
	}
	drops, expires := dropsIn(record), later(time.Time{}, record.Data[names.ScaleDownRecordExpires])
	for _, cell := range c.view.Cells() {
		data, err := s.inCell(ctx, c, cell, http.MethodGet, recordsPath+"/"+record.Name, nil, nil)
		if apierrors.IsNotFound(err) {
			continue
		}
		var other corev1.ConfigMap
		if err == nil {
			err = json.Unmarshal(data, &other)
		}
		if err != nil {
			return fmt.Errorf("reading the scale-down record %s in %s: %w", record.Name, c.view.Name(cell), err)
		}
		drops, expires = union(drops, dropsIn(&other)), later(expires, other.Data[names.ScaleDownRecordExpires])
	}
	content, err := json.Marshal(drops)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if record.Data == nil {
		record.Data = map[string]string{}
	}
	record.Data[dropsKey], record.Data[names.ScaleDownRecordExpires] = string(content), expires.UTC().Format(time.RFC3339)
	return nil
}

// union returns the drops of two records without those that both have, in the order of time.
func union(a, b []protection.Drop) []protection.Drop {
	all := slices.Clone(a)
	for _, drop := range b {
		if !slices.ContainsFunc(a, func(other protection.Drop) bool {
			return other.Time.Equal(drop.Time) && other.From == drop.From && other.To == drop.To
		}) {
			all = append(all, drop)
		}
	}
	slices.SortStableFunc(all, func(x, y protection.Drop) int { return x.Time.Compare(y.Time) })
	return all
}

func (s Records) write(ctx context.Context, info *request.RequestInfo, subject protection.Subject, record *corev1.ConfigMap, drops []protection.Drop, expires time.Time) error {
	content, err := json.Marshal(drops)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	record.Data = map[string]string{
		"object":                     fmt.Sprintf("%s %s/%s", info.Resource, info.Namespace, info.Name),
		dropsKey:                     string(content),
		names.ScaleDownRecordExpires: later(expires, record.Data[names.ScaleDownRecordExpires]).UTC().Format(time.RFC3339),
	}
	if subject.MovedFrom != "" {
		record.Data[movedFromKey] = subject.MovedFrom
	}
	body, err := json.Marshal(record)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if record.ResourceVersion == "" {
		_, err = s.send(ctx, info, http.MethodPost, recordsPath, body)
	} else {
		_, err = s.send(ctx, info, http.MethodPut, recordsPath+"/"+record.Name, body)
	}
	return err
}

// later returns the later of two times. The second is text, and may be empty.
func later(a time.Time, text string) time.Time {
	if b, err := time.Parse(time.RFC3339, text); err == nil && b.After(a) {
		return b
	}
	return a
}

// send sends a request to the control plane that holds an object.
func (s Records) send(ctx context.Context, info *request.RequestInfo, method, path string, body []byte) ([]byte, error) {
	c := &call{RequestInfo: info, view: s.Topology.View(), placement: s.place(ctx, info)}
	if c.placement == placement.OnHub {
		return s.Objects.Hub(ctx, method, path, nil, body)
	}
	if c.view == nil {
		return nil, errNoCells
	}
	var data []byte
	var answer error
	_, err := s.drive(ctx, c, s.request(c, routing.Attach, c.Name, ""), c.Name, exchange{
		send: func(cell slots.Index, write routing.Write) (routing.Result, error) {
			if method != http.MethodGet {
				if outdated, err := s.awaitLease(ctx, c, write.Epoch); outdated || err != nil {
					return routing.StaleEpoch, err
				}
			}
			c.write = &write
			defer func() { c.write = nil }()
			data, answer = s.inCell(ctx, c, cell, method, path, nil, body)
			if fence.Refusal(answer) == fence.StaleEpoch {
				return routing.StaleEpoch, nil
			}
			return routing.Done, nil
		},
	})
	if err != nil {
		return nil, err
	}
	return data, answer
}
