package ingest

import (
	"slices"
	"testing"
	"time"
)

// recorder notes what a feed is told.
type recorder struct {
	told []string
	more bool // there are more objects than are told of at once
}

func (r *recorder) note(what string)    { r.told = append(r.told, what) }
func (r *recorder) Begin()              { r.note("begin") }
func (r *recorder) Apply([]byte) error  { r.note("apply"); return nil }
func (r *recorder) Delete([]byte) error { r.note("delete"); return nil }
func (r *recorder) End()                { r.note("end") }
func (r *recorder) MarkStale(time.Time) { r.note("stale") }
func (r *recorder) MarkObjects(limit int) (int, bool) {
	r.note("mark")
	return limit, r.more
}
func (r *recorder) Fresh() { r.note("fresh") }
func (r *recorder) Drop()  { r.note("drop") }

func TestFeed(t *testing.T) {
	start := time.Now()
	for name, test := range map[string]struct {
		do   func(*feed)
		want []string
	}{
		"a member that is lost twice is stale once":   {func(f *feed) { f.lost(start); f.lost(start.Add(time.Minute)) }, []string{"stale"}},
		"one that is resumed is fresh":                {func(f *feed) { f.lost(start); f.resumed(); f.resumed() }, []string{"stale", "fresh"}},
		"one that is listed again is fresh":           {func(f *feed) { f.lost(start); f.begin(); f.end(); f.resumed() }, []string{"stale", "begin", "end"}},
		"one that is stale for too long leaves once":  {func(f *feed) { f.lost(start); f.expire(start); f.expire(start) }, []string{"stale", "drop"}},
		"one that is stale for a moment stays":        {func(f *feed) { f.lost(start); f.expire(start.Add(-time.Second)) }, []string{"stale"}},
		"one that was dropped cannot be resumed":      {func(f *feed) { f.lost(start); f.expire(start); f.resumed() }, []string{"stale", "drop"}},
		"one that was dropped is there again at last": {func(f *feed) { f.lost(start); f.expire(start); f.begin(); f.end(); f.lost(start) }, []string{"stale", "drop", "begin", "end", "stale"}},
		"all objects are told of once":                {func(f *feed) { f.tell(1); f.lost(start); f.tell(1); f.tell(1) }, []string{"stale", "mark"}},
		"many objects are told of in turn": {func(f *feed) {
			f.to.(*recorder).more = true
			f.lost(start)
			f.tell(1)
			f.tell(1)
		}, []string{"stale", "mark", "mark"}},
		"it is told that they are no longer stale": {func(f *feed) { f.lost(start); f.tell(1); f.resumed(); f.tell(1); f.tell(1) }, []string{"stale", "mark", "fresh", "mark"}},
		"a list tells it, too": {func(f *feed) {
			f.lost(start)
			f.tell(1)
			f.begin()
			f.end()
			f.tell(1)
			f.tell(1)
		}, []string{"stale", "mark", "begin", "end", "mark"}},
		"of what is gone nothing is told": {func(f *feed) { f.lost(start); f.expire(start); f.tell(1) }, []string{"stale", "drop"}},
	} {
		to := &recorder{}
		test.do(&feed{to: to})
		if !slices.Equal(to.told, test.want) {
			t.Errorf("%s: it was told %v, want %v", name, to.told, test.want)
		}
	}
}
