package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/process"
)

// The accounts of CPU time. The first four belong to the cell.
const (
	cpuEtcd      = "etcd"
	cpuAPIServer = "API server"
	cpuActive    = "active engine"
	cpuStandby   = "standby engine"
	cpuMembers   = "members"
)

var cellAccounts = []string{cpuEtcd, cpuAPIServer, cpuActive, cpuStandby}

// balance is what has been used up to a point in time.
type balance struct {
	at        time.Time
	leader    int // process id of the active engine
	writes    requests
	etcdBytes float64 // what clients sent to the cell's etcd
	fsyncs    float64 // of the log of the cell's etcd, and the seconds they took
	fsyncTime float64
	cpu       map[string]time.Duration
}

// ledger reads what the control planes have used.
type ledger struct {
	fed     *federation
	engines *engines
	etcd    *http.Client
	tls     *tls.Config    // for etcd
	planes  map[int]string // the account of each process of the control planes
}

func newLedger(ctx context.Context, f *federation, e *engines) (*ledger, error) {
	caFile, pair, err := f.cell.EtcdFiles()
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	l := &ledger{fed: f, engines: e, tls: config, etcd: &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, planes: map[int]string{}}
	for _, p := range f.planes.Status(ctx) {
		l.planes[p.PID] = accountOf(p.Name, f.cell.Name())
	}
	return l, nil
}

func accountOf(processName, cell string) string {
	switch processName {
	case cell + "/" + kubebin.Etcd:
		return cpuEtcd
	case cell + "/" + kubebin.KubeAPIServer:
		return cpuAPIServer
	default:
		return cpuMembers
	}
}

// read reads the CPU times first: reading the rest costs the API server some.
func (l *ledger) read(ctx context.Context) (*balance, error) {
	cpu, leader, err := l.cpu(ctx)
	if err != nil {
		return nil, err
	}
	writes, err := serverWrites(ctx, l.fed.cell)
	if err != nil {
		return nil, err
	}
	etcd, err := get(ctx, l.etcd, l.fed.cell.EtcdHTTPURL()+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of etcd: %w", err)
	}
	return &balance{
		at: time.Now(), leader: leader, writes: writes, cpu: cpu,
		etcdBytes: sum(etcd, "etcd_network_client_grpc_received_bytes_total"),
		fsyncs:    sum(etcd, "etcd_disk_wal_fsync_duration_seconds_count"),
		fsyncTime: sum(etcd, "etcd_disk_wal_fsync_duration_seconds_sum"),
	}, nil
}

// cpu returns the CPU time of every account, and the process id of the active engine.
func (l *ledger) cpu(ctx context.Context) (map[string]time.Duration, int, error) {
	active, standby, err := l.engines.roles(ctx)
	if err != nil {
		return nil, 0, err
	}
	leader := active.Status(ctx)
	cpu, err := l.planesCPU()
	if err != nil {
		return nil, 0, err
	}
	cpu[cpuActive], cpu[cpuStandby] = leader.CPU, standby.Status(ctx).CPU
	return cpu, leader.PID, nil
}

func (l *ledger) planesCPU() (map[string]time.Duration, error) {
	cpu := map[string]time.Duration{}
	for pid, account := range l.planes {
		usage, err := process.UsageOf(pid)
		if err != nil {
			return nil, fmt.Errorf("a process of a control plane has died: %w", err)
		}
		cpu[account] += usage.CPU
	}
	return cpu, nil
}

func serverWrites(ctx context.Context, server *plane) (requests, error) {
	metrics, err := server.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", server.Name(), err)
	}
	return writesIn(metrics), nil
}

// memberWrites counts the writes of Deployments that the members have served. Their own controllers only write status,
// which is not counted.
func (l *ledger) memberWrites(ctx context.Context) (requests, error) {
	all := requests{}
	for _, member := range l.fed.members {
		writes, err := serverWrites(ctx, member)
		if err != nil {
			return nil, err
		}
		for key, value := range writes {
			if resource := strings.Fields(key)[1]; resource == "deployments" {
				all[key] += value
			}
		}
	}
	return all, nil
}

const (
	// quietFor is how long nothing may be written for the cell to count as quiet; events are some seconds late.
	quietFor     = 6 * time.Second
	settlePeriod = 3 * time.Second // reading metrics costs the API server as much as many writes
	settleBound  = 10 * time.Minute
)

// settle waits until the cell is quiet. It returns the balance at the end of the last activity, so that the wait itself
// is not included.
func (l *ledger) settle(ctx context.Context) (*balance, error) {
	bound, cancel := context.WithTimeout(ctx, settleBound)
	defer cancel()
	last, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(settlePeriod)
	defer ticker.Stop()
	latest := requests{}
	for {
		select {
		case <-bound.Done():
			return nil, fmt.Errorf("the cell does not become quiet, the last writes were %s: %w", latest, bound.Err())
		case <-ticker.C:
		}
		now, err := l.read(ctx)
		if err != nil {
			return nil, err
		}
		if added := now.writes.since(last.writes); len(added) > 0 {
			last, latest = now, added
		} else if now.at.Sub(last.at) >= quietFor {
			return last, nil
		}
	}
}
