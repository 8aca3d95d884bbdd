package rollout_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var pictureTo = flag.String("rollout.picture", "", "file for a picture of the first update, as SVG")

// sample is what the members had at one moment, by member.
type sample struct {
	at      time.Time
	members map[string]podCount
}

type podCount struct{ old, updated, available int }

// sampled records what the members have now. Version is the image of updated pods.
func (w *watcher) sampled(version string) sample {
	s := sample{at: time.Now(), members: map[string]podCount{}}
	for name, pods := range w.pods {
		all, available := w.count(pods)
		updated := imagesOf(pods)[version]
		s.members[name] = podCount{old: all - updated, updated: updated, available: available}
	}
	return s
}

// trace records a sample at every event from now on. The function ends that and returns the samples.
func (w *watcher) trace(version string) (end func() []sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traced, w.samples = version, []sample{w.sampled(version)}
	return func() []sample {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.traced = ""
		return append(w.samples, w.sampled(version))
	}
}

// The size of a picture, in pixels.
const (
	pictureWidth, pictureLeft, pictureRight = 760, 110, 20
	sumHeight, memberHeight, pictureGap     = 170, 70, 34
)

// picture is a drawing of an update over time: the sums with their bounds, and below them the pods of each member.
type picture struct {
	bytes.Buffer
	samples []sample
	seconds float64
}

func (p *picture) x(at time.Time) float64 {
	return pictureLeft + at.Sub(p.samples[0].at).Seconds()/p.seconds*(pictureWidth-pictureLeft-pictureRight)
}

// steps draws a line that changes at each sample, or the area below it.
func (p *picture) steps(value func(sample) int, y func(int) float64, style string, base float64) {
	var points strings.Builder
	for i, s := range p.samples {
		if i > 0 {
			fmt.Fprintf(&points, "%.1f,%.1f ", p.x(s.at), y(value(p.samples[i-1])))
		}
		fmt.Fprintf(&points, "%.1f,%.1f ", p.x(s.at), y(value(s)))
	}
	if base > 0 {
		fmt.Fprintf(&points, "%.1f,%.1f %.1f,%.1f", p.x(p.samples[len(p.samples)-1].at), base, float64(pictureLeft), base)
		fmt.Fprintf(p, "<polygon points=\"%s\" %s/>\n", points.String(), style)
		return
	}
	fmt.Fprintf(p, "<polyline points=\"%s\" fill=\"none\" %s/>\n", strings.TrimSpace(points.String()), style)
}

func (p *picture) text(x, y float64, anchor, format string, args ...any) {
	fmt.Fprintf(p, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, fmt.Sprintf(format, args...))
}

func (s sample) sum(of func(podCount) int) int {
	total := 0
	for _, c := range s.members {
		total += of(c)
	}
	return total
}

// draw returns the picture as SVG.
func draw(samples []sample, least, most int) []byte {
	p := &picture{samples: samples, seconds: max(1, samples[len(samples)-1].at.Sub(samples[0].at).Seconds())}
	names := slices.Sorted(maps.Keys(samples[0].members))
	height := sumHeight + len(names)*(memberHeight+pictureGap) + 2*pictureGap
	fmt.Fprintf(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", pictureWidth, height, pictureWidth, height)
	fmt.Fprintf(p, "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", pictureWidth, height)

	// The sums. The scale begins a little below the lower bound.
	low, high := max(0, least-2), most+1
	y := func(n int) float64 {
		return pictureGap + float64(high-n)/float64(high-low)*(sumHeight-pictureGap)
	}
	for n := low; n <= high; n++ {
		p.text(pictureLeft-8, y(n)+4, "end", "%d", n)
	}
	for _, bound := range []struct {
		n    int
		name string
	}{{most, "at most (replicas + maxSurge)"}, {least, "at least (replicas - maxUnavailable)"}} {
		fmt.Fprintf(p, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b00020\" stroke-dasharray=\"5 4\"/>\n", pictureLeft, pictureWidth-pictureRight, y(bound.n), y(bound.n))
		p.text(pictureWidth-pictureRight, y(bound.n)-4, "end", "%s", bound.name)
	}
	p.steps(func(s sample) int { return s.sum(func(c podCount) int { return c.old + c.updated }) }, y, `stroke="#333333" stroke-width="2"`, 0)
	p.steps(func(s sample) int { return s.sum(func(c podCount) int { return c.available }) }, y, `stroke="#1a7f37" stroke-width="2"`, 0)
	p.text(pictureLeft, 16, "start", "all clusters: pods (grey), available pods (green), bounds of the template (red)")

	// The members: updated pods below old ones.
	for i, name := range names {
		bottom := float64(sumHeight + pictureGap + i*(memberHeight+pictureGap) + memberHeight)
		scale := func(n int) float64 { return bottom - float64(n)*memberHeight/float64(max(1, most/len(names)+2)) }
		p.steps(func(s sample) int { return s.members[name].old + s.members[name].updated }, scale, `fill="#c8d3df"`, bottom)
		p.steps(func(s sample) int { return s.members[name].updated }, scale, `fill="#2f6fb0"`, bottom)
		p.text(pictureLeft-8, bottom-memberHeight/2, "end", "%s", name)
		fmt.Fprintf(p, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#333333\"/>\n", pictureLeft, pictureWidth-pictureRight, bottom, bottom)
	}
	for second := 0; float64(second) <= p.seconds; second += max(1, int(p.seconds/8)) {
		p.text(p.x(samples[0].at.Add(time.Duration(second)*time.Second)), float64(height-pictureGap/2), "middle", "%d s", second)
	}
	p.text(pictureLeft, float64(height-2), "start", "old pods (light), updated pods (blue)")
	p.WriteString("</svg>\n")
	return p.Bytes()
}

// draw writes a picture of an update, if it was asked for.
func (w *watcher) draw(t *testing.T, samples []sample) {
	t.Helper()
	if len(samples) < 10 {
		t.Errorf("the update has only %d samples", len(samples))
	}
	if *pictureTo == "" {
		return
	}
	if err := os.WriteFile(*pictureTo, draw(samples, w.least, w.most), 0o644); err != nil {
		t.Fatal(err)
	}
}
