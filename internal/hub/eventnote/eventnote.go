// Package eventnote keeps the text of events within the limit of API servers, which reject longer ones.
package eventnote

import (
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// limit is the largest size of a text in bytes, and more marks one that was cut.
const (
	limit = 1024
	more  = "..."
)

// Cut returns a text, without its end if it is too long.
func Cut(text string) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// Recorder returns a recorder that cuts texts that are too long.
func Recorder(r events.EventRecorder) events.EventRecorder { return recorder{r} }

type recorder struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r recorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, eventtype, reason, action, "%s", Cut(fmt.Sprintf(note, args...)))
}
