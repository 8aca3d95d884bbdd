package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/parts"
)

// pace measures the speed of a change.
type pace struct {
	epoch int64
	began time.Time
	first int64 // moved objects when first observed
	moved int64
	now   time.Time
}

func (p *pace) observe(change *v1alpha1.TopologyChange, now time.Time) {
	if p.epoch != change.Epoch {
		*p = pace{epoch: change.Epoch, began: now, first: change.MovedObjects}
	}
	p.moved, p.now = change.MovedObjects, now
}

// rate returns the objects per second since the change was first observed.
func (p *pace) rate() float64 {
	elapsed := p.now.Sub(p.began).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return float64(p.moved-p.first) / elapsed
}

func (p *pace) summary() string {
	if p.epoch == 0 {
		return "nothing had to move"
	}
	return fmt.Sprintf("%d objects moved", p.moved)
}

const barWidth = 24

// describeChange returns the stage of a change and its progress.
func describeChange(topology *v1alpha1.CellTopology, p *pace, now time.Time) (stage, text string) {
	status := &topology.Status
	change := status.Change
	if change != nil {
		p.observe(change, now)
	}
	if status.Phase == v1alpha1.TopologyPromoting && status.ObservedGeneration == topology.Generation {
		return "promoting", "activating backups"
	}
	if status.ObservedGeneration != topology.Generation || change == nil || change.Epoch != topology.Generation {
		return "waiting", fmt.Sprintf("for the hub manager to start epoch %d", topology.Generation)
	}
	if status.Phase == v1alpha1.TopologyFencing {
		return "fencing", "cells start to refuse requests of older epochs"
	}
	text = fmt.Sprintf("%s %d/%d", bar(change.MovedObjects, change.TotalObjects), change.MovedObjects, change.TotalObjects)
	if rate := p.rate(); rate > 0 {
		left := time.Duration(float64(change.TotalObjects-change.MovedObjects) / rate * float64(time.Second))
		text += fmt.Sprintf(", %.0f/s, %s to go", rate, left.Round(time.Second))
	}
	return "moving", text
}

func bar(done, total int64) string {
	full := barWidth
	if total > 0 {
		full = int(min(done, total) * barWidth / total)
	}
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full) + "]"
}

// heldMetric is the number of requests that a gateway holds while their object moves.
const heldMetric = "cellplane_gateway_held_requests"

// heldRequests returns a function that describes how many requests the gateway of the local federation holds. It returns
// an empty string for other federations.
func (f *hubFlags) heldRequests() func(context.Context) string {
	unknown := func(context.Context) string { return "" }
	dir, err := federationDir(f.dir)
	if err != nil || f.kubeconfig != "" {
		return unknown
	}
	if _, err := os.Stat(local.KubeconfigFile(dir)); err != nil {
		return unknown
	}
	config, err := loadKubeconfig(local.KubeconfigFile(dir), parts.GatewayContext)
	if err != nil {
		return unknown
	}
	config.Timeout = time.Second
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return unknown
	}
	return func(ctx context.Context) string {
		metrics, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return ""
		}
		if held, found := sumOf(metrics, heldMetric); found {
			return fmt.Sprintf(", %.0f requests held", held)
		}
		return ""
	}
}

// sumOf adds up the samples of a metric.
func sumOf(exposition []byte, name string) (sum float64, found bool) {
	lines := bufio.NewScanner(bytes.NewReader(exposition))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err == nil {
			sum, found = sum+value, true
		}
	}
	return sum, found
}
