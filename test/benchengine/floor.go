package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	bareWrites = 500
	// bareSize is the size of a Work of the benchmark's Deployments.
	bareSize = 4 << 10
	// bareNamespace is not propagated.
	bareNamespace = metav1.NamespaceSystem
)

// bare measures, for comparison, the cheapest write of an API server: a ConfigMap in protobuf, without validation and
// without a controller.
func (b *bench) bare(ctx context.Context) (*section, error) {
	maps := b.fed.cell.client.CoreV1().ConfigMaps(bareNamespace)
	for i := range b.options.writers {
		if _, err := maps.Create(ctx, bareMap(i, 0), metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	before, err := b.ledger.settle(ctx)
	if err != nil {
		return nil, err
	}
	err = b.parallel(ctx, bareWrites, func(ctx context.Context, n int) error {
		_, err := maps.Update(ctx, bareMap(n%b.options.writers, n+1), metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := b.ledger.read(ctx)
	if err != nil {
		return nil, err
	}
	for i := range b.options.writers {
		if err := maps.Delete(ctx, bareMap(i, 0).Name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
	}
	s := &section{Title: fmt.Sprintf("For comparison: %d updates of ConfigMaps of %d KiB by %d clients", bareWrites, bareSize>>10, b.options.writers)}
	var each float64
	for _, account := range []string{cpuAPIServer, cpuEtcd} {
		cost := (after.cpu[account] - before.cpu[account]).Seconds() / bareWrites
		each += cost
		s.add("CPU of the "+account+", each", 1000*cost, unitMilliseconds)
	}
	s.add(fmt.Sprintf("as many as a new Deployment may take (%d)", createWritesTarget), createWritesTarget*each, unitSeconds)
	s.add(fmt.Sprintf("as many as a new image may take (%d)", updateWritesTarget), updateWritesTarget*each, unitSeconds)
	return s, nil
}

func bareMap(i, version int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: bareNamespace, Name: "bare-" + strconv.Itoa(i)},
		Data:       map[string]string{"version": strconv.Itoa(version), "content": strings.Repeat("x", bareSize)},
	}
}
