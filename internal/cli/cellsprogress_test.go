package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// look is the state of a change at some second.
type look struct {
	second       int
	phase        v1alpha1.TopologyPhase
	observed     int64 // the epoch of the status
	epoch        int64 // of the change; 0 means no change
	moved, total int64
}

func (l look) describe(p *pace) string {
	topology := &v1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	topology.Status.Phase, topology.Status.ObservedGeneration = l.phase, l.observed
	if l.epoch != 0 {
		topology.Status.Change = &v1alpha1.TopologyChange{Epoch: l.epoch, MovedObjects: l.moved, TotalObjects: l.total}
	}
	stage, text := describeChange(topology, p, time.Unix(int64(l.second), 0))
	return stage + ": " + text
}

func TestProgressOfAChange(t *testing.T) {
	const nothing, half, all = "[                        ]", "[============            ]", "[========================]"
	const fencing, moving, promoting = v1alpha1.TopologyFencing, v1alpha1.TopologyMoving, v1alpha1.TopologyPromoting
	for name, test := range map[string]struct {
		looks []look // the last one is described
		want  string
	}{
		"not started":               {[]look{{0, v1alpha1.TopologyStable, 6, 0, 0, 0}}, "waiting: for the hub manager to start epoch 7"},
		"an earlier change":         {[]look{{0, moving, 7, 6, 5, 10}}, "waiting: for the hub manager to start epoch 7"},
		"fencing":                   {[]look{{0, fencing, 7, 7, 0, 0}}, "fencing: cells start to refuse requests of older epochs"},
		"promoting":                 {[]look{{0, promoting, 7, 0, 0, 0}}, "promoting: activating backups"},
		"promoting an epoch ago":    {[]look{{0, promoting, 6, 0, 0, 0}}, "waiting: for the hub manager to start epoch 7"},
		"the first look":            {[]look{{0, moving, 7, 7, 0, 400}}, "moving: " + nothing + " 0/400"},
		"rate and time left":        {[]look{{0, moving, 7, 7, 0, 400}, {10, moving, 7, 7, 200, 400}}, "moving: " + half + " 200/400, 20/s, 10s to go"},
		"moved before first look":   {[]look{{0, moving, 7, 7, 100, 400}, {10, moving, 7, 7, 200, 400}}, "moving: " + half + " 200/400, 10/s, 20s to go"},
		"another epoch starts over": {[]look{{0, moving, 6, 6, 0, 400}, {10, moving, 6, 6, 200, 400}, {20, moving, 7, 7, 200, 400}}, "moving: " + half + " 200/400"},
		"no progress":               {[]look{{0, moving, 7, 7, 200, 400}, {10, moving, 7, 7, 200, 400}}, "moving: " + half + " 200/400"},
		"the end":                   {[]look{{0, moving, 7, 7, 0, 400}, {4, moving, 7, 7, 400, 400}}, "moving: " + all + " 400/400, 100/s, 0s to go"},
		"nothing to move":           {[]look{{0, moving, 7, 7, 0, 0}}, "moving: " + all + " 0/0"},
		"more than expected":        {[]look{{0, moving, 7, 7, 9, 8}}, "moving: " + all + " 9/8"},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			got := ""
			for _, look := range test.looks {
				got = look.describe(&p)
			}
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestSummaryOfAChange(t *testing.T) {
	var p pace
	if got := p.summary(); got != "nothing had to move" {
		t.Errorf("without a change the summary is %q", got)
	}
	p.observe(&v1alpha1.TopologyChange{Epoch: 3, MovedObjects: 12}, time.Unix(0, 0))
	if got := p.summary(); got != "12 objects moved" {
		t.Errorf("the summary is %q", got)
	}
}

func TestSumOfSamples(t *testing.T) {
	exposition := []byte(strings.Join([]string{
		"# HELP held Requests that wait.", "# TYPE held gauge",
		"held 2", `held{gateway="a b"} 3`, "held_total 40", `held_seconds{le="1"} 50`, "unheld 60", "held broken", "",
	}, "\n"))
	if sum, found := sumOf(exposition, "held"); !found || sum != 5 {
		t.Errorf("the sum is %v (%v), want 5", sum, found)
	}
	if sum, found := sumOf(exposition, "hel"); found {
		t.Errorf("a prefix of the name has the sum %v", sum)
	}
}
