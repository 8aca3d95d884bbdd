package router

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
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
	dropsKey = "drops"
	// recordAttempts limits how often a record is rewritten after a conflict with another gateway.
	recordAttempts = 10
)

// Records stores decreases of replicas in a ConfigMap for each object: in its cell, in the namespace of the control plane.
type Records struct{ Objects }

// List returns the drops of an object.
func (s Records) List(ctx context.Context, info *request.RequestInfo, uid string) ([]protection.Drop, error) {
	record, err := s.read(ctx, info, uid)
	if err != nil {
		return nil, err
	}
	return dropsIn(record), nil
}

// Add adds a drop, and removes those that are older by more than keep.
func (s Records) Add(ctx context.Context, info *request.RequestInfo, uid string, drop protection.Drop, keep time.Duration) error {
	for attempt := 1; ; attempt++ {
		record, err := s.read(ctx, info, uid)
		if err != nil {
			return err
		}
		var drops []protection.Drop
		for _, old := range dropsIn(record) {
			if old.Time.After(drop.Time.Add(-keep)) {
				drops = append(drops, old)
			}
		}
		err = s.write(ctx, info, record, append(drops, drop))
		if (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) && attempt < recordAttempts {
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
	return "scale-down-" + hex.EncodeToString(sum[:16])
}

const recordsPath = "/api/v1/namespaces/" + names.SystemNamespace + "/configmaps"

// read returns the record of an object, or an empty one.
func (s Records) read(ctx context.Context, info *request.RequestInfo, uid string) (*corev1.ConfigMap, error) {
	record := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: recordName(info, uid)},
	}
	data, err := s.send(ctx, info, http.MethodGet, recordsPath+"/"+record.Name, nil)
	if apierrors.IsNotFound(err) {
		return s.readElsewhere(ctx, info, record)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, record); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("decoding the scale-down record %s: %w", record.Name, err))
	}
	return record, nil
}

// readElsewhere looks for a record in the other cells: the object may have moved from one of them, and records do not move with it. The
// next write stores it in the object's cell.
func (s Records) readElsewhere(ctx context.Context, info *request.RequestInfo, record *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	c := &call{RequestInfo: info, view: s.Topology.View(), placement: s.place(ctx, info)}
	if c.placement == placement.OnHub || c.view == nil {
		return record, nil
	}
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
			return nil, fmt.Errorf("reading the scale-down record %s in %s: %w", record.Name, c.view.Name(cell), err)
		}
		record.Data = other.Data
		return record, nil
	}
	return record, nil
}

func (s Records) write(ctx context.Context, info *request.RequestInfo, record *corev1.ConfigMap, drops []protection.Drop) error {
	content, err := json.Marshal(drops)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	record.Data = map[string]string{
		"object": fmt.Sprintf("%s %s/%s", info.Resource, info.Namespace, info.Name),
		dropsKey: string(content),
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
