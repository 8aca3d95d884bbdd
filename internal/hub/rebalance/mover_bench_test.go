package rebalance

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// BenchmarkMove measures the cost of moving an object, by how many move at once: the CPU time of the mover, the
// stores and the API servers, without engines, backups, gateways or clients. CPU time is meaningful on a busy machine
// too.
func BenchmarkMove(b *testing.B) {
	const created = 2000
	env := newCellEnv(b, 2)
	env.createConfigMaps(b, "cell-a", created)
	back := false
	for _, atOnce := range []int{4, 16, 64} {
		b.Run(fmt.Sprint(atOnce), func(b *testing.B) {
			moved := int64(0)
			var spent [3]time.Duration
			for b.Loop() {
				m := env.mover(b, joining(b, back, "cell-a", "cell-b"))
				m.pace = newPace(atOnce)
				m.pace.limit = atOnce
				before := env.cpu(b.Context())
				if err := m.Run(b.Context()); err != nil {
					b.Fatal(err)
				}
				for part, now := range env.cpu(b.Context()) {
					spent[part] += now - before[part]
				}
				all, _ := m.Progress()
				moved, back = moved+all, !back
			}
			if moved < created/3 {
				b.Fatalf("%d objects have moved", moved)
			}
			b.ReportMetric(float64(moved)/b.Elapsed().Seconds(), "objects/s")
			for part, name := range []string{"mover", "etcd", "apiserver"} {
				b.ReportMetric(spent[part].Seconds()*1000/float64(moved), name+"-ms/object")
			}
		})
	}
}

// createConfigMaps creates objects as large as those of make bench-cells.
func (env *cellEnv) createConfigMaps(b *testing.B, cell string, count int) {
	b.Helper()
	client, err := kubernetes.NewForConfig(env.configs[cell])
	if err != nil {
		b.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	for i := range count {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i)}, Data: map[string]string{"text": strings.Repeat("x", 1000)}}
		group.Go(func() error {
			_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(b.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// cpu returns the CPU time of this process, the stores and the API servers.
func (env *cellEnv) cpu(ctx context.Context) [3]time.Duration {
	var used [3]time.Duration
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err == nil {
		used[0] = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	for _, p := range env.federation.Status(ctx) {
		switch {
		case strings.HasSuffix(p.Name, "/etcd"):
			used[1] += p.CPU
		case strings.HasSuffix(p.Name, "/kube-apiserver"):
			used[2] += p.CPU
		}
	}
	return used
}
