package ingest

import (
	"slices"
	"testing"
	"time"
)

// recorder records the calls of a feed.
type recorder struct {
	calls []string
	more  bool // one call does not mark all objects
}

func (r *recorder) note(what string)    { r.calls = append(r.calls, what) }
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
		"lost twice, stale once":                      {func(f *feed) { f.lost(start); f.lost(start.Add(time.Minute)) }, []string{"stale"}},
		"one that is resumed is fresh":                {func(f *feed) { f.lost(start); f.resumed(); f.resumed() }, []string{"stale", "fresh"}},
		"one that is listed again is fresh":           {func(f *feed) { f.lost(start); f.begin(start); f.end(); f.resumed() }, []string{"stale", "begin", "end"}},
		"one that is stale for too long leaves once":  {func(f *feed) { f.lost(start); f.expire(start); f.expire(start) }, []string{"stale", "drop"}},
		"one that is stale for a moment stays":        {func(f *feed) { f.lost(start); f.expire(start.Add(-time.Second)) }, []string{"stale"}},
		"one that was dropped cannot be resumed":      {func(f *feed) { f.lost(start); f.expire(start); f.resumed() }, []string{"stale", "drop"}},
		"one that was dropped is there again at last": {func(f *feed) { f.lost(start); f.expire(start); f.begin(start); f.end(); f.lost(start) }, []string{"stale", "drop", "begin", "end", "stale"}},
		"all objects are marked once":                 {func(f *feed) { f.mark(1); f.lost(start); f.mark(1); f.mark(1) }, []string{"stale", "mark"}},
		"many objects are marked in turn": {func(f *feed) {
			f.to.(*recorder).more = true
			f.lost(start)
			f.mark(1)
			f.mark(1)
		}, []string{"stale", "mark", "mark"}},
		"marks are removed after a resume": {func(f *feed) { f.lost(start); f.mark(1); f.resumed(); f.mark(1); f.mark(1) }, []string{"stale", "mark", "fresh", "mark"}},
		"marks are removed after a list": {func(f *feed) {
			f.lost(start)
			f.mark(1)
			f.begin(start)
			f.end()
			f.mark(1)
			f.mark(1)
		}, []string{"stale", "mark", "begin", "end", "mark"}},
		"a list that follows a removal is not removed before its end": {func(f *feed) {
			f.lost(start)
			f.expire(start)
			f.begin(start.Add(time.Minute))
			f.expire(start.Add(time.Minute))
			f.end()
		}, []string{"stale", "drop", "begin", "end"}},
		"stale objects stay while they are listed again": {func(f *feed) {
			f.lost(start)
			f.begin(start.Add(time.Minute))
			f.expire(start)
			f.end()
			f.expire(start.Add(time.Hour))
		}, []string{"stale", "begin", "end"}},
		"stale objects leave if the list hangs, and are listed once more": {func(f *feed) {
			f.lost(start)
			f.begin(start)
			f.expire(start)
			if !f.end() {
				f.begin(start)
				f.end()
			}
		}, []string{"stale", "begin", "drop", "begin", "end"}},
		"stale objects leave if the list fails": {func(f *feed) {
			f.lost(start)
			f.begin(start.Add(time.Minute))
			f.lost(start.Add(time.Minute))
			f.expire(start)
		}, []string{"stale", "begin", "drop"}},
		"part of a list that failed after a removal is stale": {func(f *feed) {
			f.lost(start)
			f.expire(start)
			f.begin(start)
			f.lost(start.Add(time.Minute))
			f.expire(start)
		}, []string{"stale", "drop", "begin", "stale"}},
		"dropped objects are not marked": {func(f *feed) { f.lost(start); f.expire(start); f.mark(1) }, []string{"stale", "drop"}},
	} {
		to := &recorder{}
		test.do(&feed{to: to})
		if !slices.Equal(to.calls, test.want) {
			t.Errorf("%s: got calls %v, want %v", name, to.calls, test.want)
		}
	}
}
