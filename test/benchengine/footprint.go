package main

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/process"
)

// footprint is what the cell's API server and etcd hold.
type footprint struct {
	stored    int64 // bytes in use in the database of etcd, without history
	apiServer int64 // resident memory
	etcd      int64
}

// footprint compacts the store first, so that only what exists is counted.
func (l *ledger) footprint(ctx context.Context) (*footprint, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{l.fed.cell.EtcdURL()}, TLS: l.tls})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	now, err := client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("reading the revision of etcd: %w", err)
	}
	if _, err := client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return nil, fmt.Errorf("compacting etcd: %w", err)
	}
	status, err := client.Status(ctx, l.fed.cell.EtcdURL())
	if err != nil {
		return nil, fmt.Errorf("reading the status of etcd: %w", err)
	}
	f := &footprint{stored: status.DbSizeInUse}
	for pid, account := range l.planes {
		usage, err := process.UsageOf(pid)
		if err != nil {
			return nil, fmt.Errorf("a process of a control plane has died: %w", err)
		}
		switch account {
		case cpuAPIServer:
			f.apiServer = usage.RSS
		case cpuEtcd:
			f.etcd = usage.RSS
		}
	}
	return f, nil
}

// addFootprint adds what the cell holds, and its growth by each of n workloads.
func (s *section) addFootprint(before, after *footprint, n int) {
	s.add("database of the cell's etcd, without history", mebibytes(after.stored), unitMebibytes)
	s.add("… growth per workload", float64(after.stored-before.stored)/1024/float64(n), unitKibibytes)
	s.add("RSS of the cell's API server before they were made", mebibytes(before.apiServer), unitMebibytes)
	s.add("… with them", mebibytes(after.apiServer), unitMebibytes)
	s.add("RSS of the cell's etcd before they were made", mebibytes(before.etcd), unitMebibytes)
	s.add("… with them", mebibytes(after.etcd), unitMebibytes)
}
