package index

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Progress is how far an index is.
type Progress struct {
	Target Target
	Kind   schema.GroupVersionKind
	// State is the state, and Message explains it unless it is Indexed.
	State   State
	Message string
}

// State is the state of an index.
type State string

const (
	// Indexing means that the documents of some clusters have not been compared yet.
	Indexing State = "Indexing"
	// Indexed means that all objects are indexed.
	Indexed State = "Indexed"
	// Behind means that changes wait for longer than usual.
	Behind State = "Behind"
	// Failing means that the search engine does not take changes, or cannot be used.
	Failing State = "Failing"
	// Refusing means that it does not take some documents.
	Refusing State = "Refused"
)

const (
	// maxLag is how long changes usually wait at most.
	maxLag = 30 * time.Second
	// maxRefused bounds the documents of which it is known that they were refused, and maxText the length of a message.
	maxRefused = 1000
	maxText    = 300
	// maxNamed is how many clusters a message names.
	maxNamed = 5
)

// refusal is a document that the search engine does not take.
type refusal struct{ cluster, text string }

// refuse notes a document that is not indexed.
func (x *indexer) refuse(o *Operation, why string) {
	if len(x.refused) < maxRefused {
		x.refused[o.ID] = refusal{o.Cluster, shorten(fmt.Sprintf("%s of cluster %s: %s", o.Name, o.Cluster, why))}
	}
}

// report publishes the progress.
func (x *indexer) report() {
	now := Progress{Target: x.progress.Target, Kind: x.kind}
	now.State, now.Message = x.state()
	lag := time.Duration(0)
	if since := x.pending.oldest(); !since.IsZero() {
		lag = time.Since(since)
	}
	x.metrics.lag.Set(lag.Seconds())
	x.mu.Lock()
	changed := x.progress != now
	x.progress = now
	x.mu.Unlock()
	if changed {
		x.notify()
	}
}

func (x *indexer) state() (State, string) {
	waiting, since := x.waiting(), x.pending.oldest()
	switch {
	case x.failure != "" && since.IsZero():
		return Failing, x.failure
	case x.failure != "":
		return Failing, fmt.Sprintf("changes since %s wait: %s", since.UTC().Format(time.RFC3339), x.failure)
	case len(waiting) > 0:
		text := strings.Join(waiting[:min(maxNamed, len(waiting))], ", ")
		if more := len(waiting) - maxNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return Indexing, "not all objects are indexed yet, of the clusters " + text
	case !since.IsZero() && time.Since(since) > maxLag:
		return Behind, "changes since " + since.UTC().Format(time.RFC3339) + " wait"
	case len(x.refused) > 0:
		first := ""
		for _, r := range x.refused {
			if first == "" || r.text < first {
				first = r.text
			}
		}
		return Refusing, fmt.Sprintf("%d documents were refused, such as that of %s", len(x.refused), first)
	}
	return Indexed, ""
}

// waiting returns the clusters whose documents have not been compared yet.
func (x *indexer) waiting() []string {
	var all []string
	for cluster := range x.scoped {
		if state := x.clusters[cluster]; state == nil || !state.indexed {
			all = append(all, cluster)
		}
	}
	slices.Sort(all)
	return all
}

func (x *indexer) current() Progress {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.progress
}

func shorten(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
