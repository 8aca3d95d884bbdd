package router

import (
	"context"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/samples"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
)

const (
	// sampleInterval is how often the revisions of the cells are read. The first readings of a topology follow each other faster: a watch can
	// begin at a version once every cell has been read twice.
	sampleInterval      = time.Second
	firstSampleInterval = 50 * time.Millisecond
	// sampleTimeout limits one reading.
	sampleTimeout = 5 * time.Second
	// samplesKept is how long readings are kept. API servers keep the events of about as long.
	samplesKept = 5 * time.Minute
)

// Sample reads the revisions of all cells from time to time, until the context ends. Watches that begin at the version of an object
// need them.
func (rt *Router) Sample(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-rt.Topology.Known():
	}
	var busy sync.Map // by the number of the cell
	for interval := firstSampleInterval; ; interval = min(2*interval, sampleInterval) {
		view := rt.Topology.View()
		if view.Owners != nil {
			for _, cell := range view.Places(placement.Anywhere) {
				number := view.Number(cell)
				if _, reading := busy.LoadOrStore(number, nil); reading {
					continue
				}
				go func() {
					defer busy.Delete(number)
					rt.sample(ctx, view, cell, number)
				}()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-view.Superseded(): // cells may have joined
			interval = firstSampleInterval
		case <-time.After(interval):
		}
	}
}

// sample reads the revision of a cell or of the hub: that of a list, which is the revision of the whole store.
func (rt *Router) sample(ctx context.Context, view *topology.View, cell slots.Index, number uint16) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	info := &request.RequestInfo{APIPrefix: "api", APIVersion: "v1", Namespace: names.SystemNamespace, Resource: "limitranges"}
	c := &call{RequestInfo: info, view: view, placement: placement.Anywhere}
	if c.isHub(cell) { // the gateway may list those
		info.Namespace, info.Resource = "", "namespaces"
	}
	begun := time.Now()
	revision, err := rt.versionOf(ctx, c, cell)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("cannot read the revision of a cell", "cell", view.Name(cell), "err", err)
		return
	}
	rt.samples.Add(number, samples.Reading{Begun: begun, Ended: time.Now(), Epoch: view.Epoch(), Revision: revision})
}

// sampled returns a position at which the object of a version was the last that was written in its cell, and nothing later can be seen
// of the other cells that the call reads. It is false if neither the samples nor the topologies reach back so far.
func (rt *Router) sampled(c *call, v position.Version) (position.Position, bool) {
	epoch, bounds, found := rt.samples.Bounds(v.Cell, v.Revision, func(epoch int64) (numbers []uint16) {
		if view := rt.Topology.At(epoch); view != nil {
			for _, cell := range view.Places(c.placement) {
				numbers = append(numbers, view.Number(cell))
			}
		}
		return numbers
	})
	view := rt.Topology.At(epoch)
	if !found || view == nil {
		return rt.Topology.Joined(v) // before its cell was read for the first time
	}
	at := position.Position{Epoch: epoch, Versions: make([]uint64, view.Width(c.placement))}
	for cell, least := range view.Left() {
		at.Versions[cell] = least
	}
	for _, cell := range view.Places(c.placement) {
		if number := view.Number(cell); number == v.Cell {
			at.Versions[cell] = v.Revision
		} else {
			at.Versions[cell] = bounds[number]
		}
	}
	return at, true
}
