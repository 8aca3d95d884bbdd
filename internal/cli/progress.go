package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress shows the current stage and its duration: on a terminal as one line that is overwritten, elsewhere as a line
// per change.
type progress struct {
	out      io.Writer
	terminal bool
	width    int

	stage   string
	began   time.Time // of the stage
	text    string
	printed time.Time
}

// repeatAfter is the longest time without a line when the output is not a terminal.
const repeatAfter = 15 * time.Second

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.terminal = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			p.width = width
		}
	}
	return p
}

// show prints the stage, for example "building", and its details.
func (p *progress) show(stage, text string) {
	now := time.Now()
	newStage := stage != p.stage
	if newStage {
		p.end()
		p.stage, p.began = stage, now
	}
	if p.terminal {
		p.text = text
		line := p.line(now)
		if p.width > 0 && len(line) > p.width-1 {
			line = line[:p.width-1]
		}
		fmt.Fprintf(p.out, "\r\033[K%s", line)
		return
	}
	// The number of compiled packages changes constantly; print it every repeatAfter.
	changed := text != p.text && stage != "building"
	if newStage || changed || now.Sub(p.printed) > repeatAfter {
		p.text, p.printed = text, now
		fmt.Fprintln(p.out, p.line(now))
	}
}

func (p *progress) line(now time.Time) string {
	return fmt.Sprintf("%-9s %s %s", p.stage, p.text, now.Sub(p.began).Round(time.Second))
}

// end finishes the line of the current stage.
func (p *progress) end() {
	if p.terminal && p.stage != "" {
		fmt.Fprintln(p.out)
	}
	p.stage, p.text = "", ""
}
