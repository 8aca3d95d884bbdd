package router

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/placement"
)

// writesKept is how many writes the gateway remembers, so that watches can begin right after them.
const writesKept = 8192

// beginWrite notes that a write of an object is under way.
func (rt *Router) beginWrite(c *call, name string) {
	if rt.streams == nil || c.arrived.IsZero() || c.placement != placement.ByName {
		return
	}
	c.written.End() // another name was tried before
	c.written = rt.writes.Begin(c.qualified()+"/"+c.Namespace+"/"+name, c.arrived)
}

// noteWrite notes what a write has done, by its answer. It must be called before the client gets that.
func (rt *Router) noteWrite(r *http.Request, c *call, answer []byte) {
	if c.written == nil || mayBeDryRun(r, c) {
		return
	}
	number := c.view.Number(c.wrote)
	if c.Verb == "delete" {
		// This is how API servers answer if the object is gone. If it is not, the answer is the object.
		if status := readStatus(answer); status != nil && status.Details != nil && status.Details.UID != "" {
			c.written.Deleted(string(status.Details.UID))
			return
		}
	}
	revision, err := strconv.ParseUint(c.stamped, 10, 64)
	if err != nil || number == 0 {
		return
	}
	// A write that changes nothing is answered with a former revision. Without a sample from before the write nothing is known.
	if former, sampled := rt.samples.At(number, c.arrived); !sampled || revision <= former {
		return
	}
	c.written.Made(number, revision)
}

// mayBeDryRun reports whether a write may have been tried only. Those of deletions are options in the body, in any encoding.
func mayBeDryRun(r *http.Request, c *call) bool {
	if r.URL.Query().Has("dryRun") {
		return true
	}
	if c.Verb != "delete" {
		return false
	}
	body, err := forward.ReadBody(r)
	return err != nil || bytes.Contains(body, []byte("dryRun")) || bytes.Contains(body, []byte("All"))
}

// issuedKept is how many positions of lists are remembered.
const issuedKept = 256

// issued remembers when lists were served. Everything that a list shows was committed before.
type issued struct {
	mu        sync.Mutex
	times     map[string]time.Time
	positions [issuedKept]string
	next      int
}

func (i *issued) note(version string, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.times[version]; known {
		return
	}
	if i.times == nil {
		i.times = map[string]time.Time{}
	}
	delete(i.times, i.positions[i.next])
	i.times[version], i.positions[i.next] = now, version
	i.next = (i.next + 1) % issuedKept
}

// before returns a time before which everything at a position was committed, and whether the position is that of a list that this gateway
// has served.
func (i *issued) before(version string) (at time.Time, listed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if known, found := i.times[version]; found {
		return known, true
	}
	return time.Now(), false
}
