package doctor

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// fullWarning is the part of its quota from which on the use of an etcd is told of. Defragmentation gives back what is not in use.
const fullWarning = 0.8

// checkStores looks at alarms and sizes of the cells' etcds. That of the hub cannot be reached by its kubeconfig.
func (d *Doctor) checkStores(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	for _, p := range d.planes[1:] {
		store, err := d.pool.Store(ctx, p.name)
		if err != nil {
			return findings, err
		}
		found, err := checkStore(ctx, store)
		if err != nil {
			return findings, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

func checkStore(ctx context.Context, store *cellstore.Store) ([]Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, cellstore.RequestTimeout)
	defer cancel()
	var findings []Finding
	alarms, err := store.Client().AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the alarms of the etcd of cell %s: %w", store.Cell, err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NONE {
			findings = append(findings, find(EtcdAlarm, Error, "etcd of cell "+store.Cell, fmt.Sprintf("member %x has the alarm %s", alarm.MemberID, alarm.Alarm)))
		}
	}
	for _, endpoint := range store.Client().Endpoints() {
		status, err := store.Client().Status(ctx, endpoint)
		if err != nil {
			return findings, fmt.Errorf("reading the status of %s: %w", endpoint, err)
		}
		findings = append(findings, space(store.Cell, endpoint, status)...)
	}
	return findings, nil
}

func space(cell, endpoint string, status *clientv3.StatusResponse) []Finding {
	if status.DbSizeQuota <= 0 || float64(status.DbSize) < fullWarning*float64(status.DbSizeQuota) {
		return nil
	}
	return []Finding{find(EtcdSpace, Warning, "etcd of cell "+cell, fmt.Sprintf("%s has %d MiB of at most %d, of which %d are in use", endpoint, status.DbSize>>20, status.DbSizeQuota>>20, status.DbSizeInUse>>20))}
}
