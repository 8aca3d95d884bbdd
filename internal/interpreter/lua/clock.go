package lua

import (
	"strings"
	"time"

	glua "github.com/yuin/gopher-lua"
)

func (m *machine) osFunctions() map[string]glua.LGFunction {
	return map[string]glua.LGFunction{"date": m.osDate, "time": m.osTime}
}

// osTime returns the current time. Unlike Lua's, it does not accept a table.
func (m *machine) osTime(l *glua.LState) int {
	if l.GetTop() > 0 && l.Get(1) != glua.LNil {
		badArgument(l, 1, "only the current time is available")
	}
	l.Push(glua.LNumber(m.now().Unix()))
	return 1
}

// layouts are the conversions of strftime in Go's terms.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'F': "2006-01-02",
	'H': "15", 'I': "03", 'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'T': "15:04:05", 'x': "01/02/06",
	'X': "15:04:05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
}

// osDate always uses UTC.
func (m *machine) osDate(l *glua.LState) int {
	format := strings.TrimPrefix(l.OptString(1, "%c"), "!")
	when := m.now().UTC()
	if l.Get(2) != glua.LNil {
		when = time.Unix(int64(integer(l, 2, 0)), 0).UTC()
	}
	if strings.HasPrefix(format, "*t") {
		t := l.NewTable()
		for name, value := range map[string]int{
			"year": when.Year(), "month": int(when.Month()), "day": when.Day(), "hour": when.Hour(), "min": when.Minute(),
			"sec": when.Second(), "wday": int(when.Weekday()) + 1, "yday": when.YearDay(),
		} {
			t.RawSetString(name, glua.LNumber(value))
		}
		t.RawSetString("isdst", glua.LFalse)
		l.Push(t)
		return 1
	}
	m.budget.work(l, 4*len(format))
	m.budget.alloc(l, 16*len(format))
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		layout, known := "", false
		if format[i] == '%' && i+1 < len(format) {
			i++
			layout, known = layouts[format[i]]
		}
		if known {
			out.WriteString(when.Format(layout))
		} else {
			out.WriteByte(format[i])
		}
	}
	return m.push(l, out.String())
}
