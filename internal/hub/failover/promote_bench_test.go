package failover

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
)

// BenchmarkPromotion measures how fast the copies of a cell are promoted in the two others, without clients. Objects
// are as large as those of make bench-cells.
func BenchmarkPromotion(b *testing.B) {
	const copies = 5000
	w := newWorld(b)
	failed := w.compile(b, 2, gone)
	promotion := Promotion{Topology: failed, Failed: gone, Stores: w.without(gone), Term: term}
	text := strings.Repeat("x", 1000)
	for b.Loop() {
		b.StopTimer()
		w.wipe(b)
		operations := map[string][]clientv3.Op{}
		taken := map[string]bool{}
		for i := range copies {
			backupCell := []string{"cell-a", "cell-b"}[i%2]
			name := w.lostName(b, failed, gone, backupCell, taken)
			operations[backupCell] = append(operations[backupCell], cellstore.Put(backup.Prefix(gone)+configMaps+name, active(text).value(name)))
		}
		for backupCell, puts := range operations {
			w.putAll(b, backupCell, puts)
		}
		b.StartTimer()
		if promoted, err := promotion.Run(b.Context()); err != nil || promoted.Objects != copies {
			b.Fatalf("%d objects were promoted: %v", promoted.Objects, err)
		}
	}
	b.ReportMetric(float64(copies*b.N)/b.Elapsed().Seconds(), "objects/s")
}

// putAll stores many things in a cell.
func (w *world) putAll(t testing.TB, cell string, puts []clientv3.Op) {
	t.Helper()
	for len(puts) > 0 {
		n := min(len(puts), 100)
		if _, err := w.stores[cell].Txn(t.Context(), term, nil, puts[:n]...); err != nil {
			t.Fatal(err)
		}
		puts = puts[n:]
	}
}
