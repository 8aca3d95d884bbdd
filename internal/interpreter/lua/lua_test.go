package lua

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func runScript(t testing.TB, r *Runner, source string, results int, args ...any) ([]any, error) {
	t.Helper()
	script, err := Compile("customization web/F", "F", source)
	if err != nil {
		t.Fatalf("compiling: %v", err)
	}
	return r.Call(context.Background(), script, results, args...)
}

// TestLanguage checks the language features that scripts rely on.
func TestLanguage(t *testing.T) {
	now := func() time.Time { return time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC) }
	r := NewRunner(Limits{}, now)
	cases := []struct {
		body string
		want any
	}{
		{`return 1 + 2`, int64(3)},
		{`return 7 / 2`, 3.5},
		{`return "a" .. 1 .. true and "x"`, "error: attempt to concatenate a boolean value"},
		{`return "a" .. 1 .. 2.5 .. "b"`, "a12.5b"},
		{`return ("x"):rep(3):upper()`, "XXX"},
		{`return string.format("%5.2f|%-4d|%s|%q|%%|%x", 3.14159, 7, {}, 'a"b', 255)`, ` 3.14|7   |table|"a\"b"|%|ff`},
		{`return string.format("%999d", 1)`, "error: invalid option in format"},
		{`return table.concat({1, 2, "c"}, ", ")`, "1, 2, c"},
		{`local t = {3, 1, 2} table.sort(t) return table.concat(t, "")`, "123"},
		{`local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t, "")`, "321"},
		{`local t = {1, 3} table.insert(t, 2, 2) table.insert(t, 4) return table.concat(t, "") .. table.remove(t, 1) .. #t`, "123413"},
		{`local s = 0 for k, v in pairs({a = 1, b = 2}) do s = s + v end for _, v in ipairs({3, 4}) do s = s + v end return s`, int64(10)},
		{`local i, t = 1, {} i, t[i] = i + 1, 20 return t[1] .. ":" .. i`, "20:2"},
		{`local t = {1, 2} t[1], t[2] = t[2], t[1] return t[1] .. t[2]`, "21"},
		{`local t = {} t.a, t["b" .. ""], x = 1, 2 return t.a + t.b .. tostring(x)`, "3nil"},
		{`local function f() return 1, 2 end local t = {f()} t[#t + 1] = f() return #t`, int64(3)},
		{`local function f(...) return select("#", ...) end return f("a" .. "b", nil)`, int64(2)},
		{`return (("a,b,,c"):gsub(",", ";"))`, "a;b;;c"},
		{`return (("hello world"):gsub("(%w+)", "<%1>"))`, "<hello> <world>"},
		{`return (("$a $b"):gsub("%$(%w+)", {a = "1"}))`, "1 $b"},
		{`return (("abc"):gsub("%w", function(c) return c .. c end, 2))`, "aabbc"},
		{`return (("abc"):gsub("", "-"))`, "-a-b-c-"},
		{`local out = "" for k, v in string.gmatch("a=1, b=22", "(%w+)=(%w+)") do out = out .. k .. v end return out`, "a1b22"},
		{`return string.match("2h30m", "^(%d+)h(%d*)m$") `, "2"},
		{`return select(2, ("key = value"):match("^(%w+)%s*=%s*(%w+)$"))`, "value"},
		{`return ("f(a(b)c)d"):match("%b()")`, "(a(b)c)"},
		{`return ("THE (quick) fox"):find("%((%a+)%)")`, int64(5)},
		{`return ("hello"):find("l", 1, true)`, int64(3)},
		{`return ("x.y"):find(".", 1, true)`, int64(2)},
		{`return ("THE fox"):gsub("%f[%a]%a+", "w")`, "w w"},
		{`return ("aXb"):match("()X()")`, int64(2)},
		{`return ("abab"):match("(ab)%1")`, "ab"},
		{`return ("[x]-y"):match("[%]x%-]+", 2)`, "x]-"},
		{`return ("0x1F"):match("^0[xX](%x+)$")`, "1F"},
		{`return ("abc"):match("(")`, "error: unfinished capture"},
		{`return ("abc"):match("[a")`, "error: malformed pattern"},
		{`return ("abc"):match("%")`, "error: malformed pattern"},
		{`return ("x"):byte() + ("ab"):byte(-1)`, int64('x' + 'b')},
		{`return string.char(72, 105)`, "Hi"},
		{`return ("abcdef"):sub(-3, -2) .. ("abc"):sub(2) .. ("abc"):sub(5)`, "debc"},
		{`return math.max(1, 3) + math.ceil(1.2) + math.floor(-0.5)`, int64(4)},
		{`return os.date("!%Y-%m-%dT%H:%M:%SZ") .. os.time()`, "2025-03-04T05:06:07Z1741064767"},
		{`return os.date("*t").year`, int64(2025)},
		{`local ok, err = pcall(function() error({code = 7}) end) return err.code`, int64(7)},
		{`local ok, err = xpcall(function() error("x", 0) end, function(e) return e .. "!" end) return err`, "x!"},
		{`return type(require("kube").accuratePodRequirements)`, "function"},
		{`return require("kube").getResourceQuantity("1500m") + kube.getResourceQuantity(nil)`, 1.5},
		{`return require("kube").resourceAdd("1", "500m", nil)`, "1500m"},
		{`return kube.getResourceQuantity("1e1000000000")`, "error: exponent"},
		{`return require("os").execute("true")`, `error: unknown module`},
		{`return _G.string.upper("a") .. tostring(_G.undefined)`, "Anil"},
		{`local t = nil; t[1] = 2`, "error: attempt to index a non-table object(nil) with key '1'"},
		{`local t = {} t[nil] = 1`, "error: table index is nil"},
		{`local t = {} t[0/0] = 1`, "error: table index is NaN"},
	}
	for _, name := range refused {
		cases = append(cases, struct {
			body string
			want any
		}{name + "()", "error: " + name + " is not available"})
	}
	for _, name := range []string{"io", "debug", "coroutine", "package", "channel", "os.execute", "os.getenv", "math.random", "string.dump"} {
		cases = append(cases, struct {
			body string
			want any
		}{"return type(" + name + ")", "nil"})
	}
	for _, tc := range cases {
		got, err := runScript(t, r, "function F() "+tc.body+" end", 1)
		if want, isError := strings.CutPrefix(fmt.Sprint(tc.want), "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "customization web/F") {
				t.Errorf("%s: got %v, %v, want an error naming the customization and saying %q", tc.body, got, err, want)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got[0], tc.want) {
			t.Errorf("%s: got %#v, %v, want %#v", tc.body, got, err, tc.want)
		}
	}
}

func TestCompileErrorsTellTheLine(t *testing.T) {
	cases := map[string]struct{ source, want string }{
		"syntax":      {"function F()\n  return )\nend", "line:2"},
		"unfinished":  {"function F(", "EOF"},
		"goto":        {"function F()\n goto missing\nend", "missing"},
		"too long":    {strings.Repeat("-- x\n", 20000), "more than the 65536 allowed"},
		"parentheses": {"x = " + strings.Repeat("(", 30000) + "1" + strings.Repeat(")", 30000), ""},
		"tables":      {"x = " + strings.Repeat("{", 30000) + strings.Repeat("}", 30000), "nests deeper than 200 levels"},
		"functions":   {strings.Repeat("function f() ", 3000) + strings.Repeat("end ", 3000), "nests deeper than 200 levels"},
		"negations":   {"x = " + strings.Repeat("not ", 15000) + "1", "nests deeper than 200 levels"},
		"sums":        {"x = 1" + strings.Repeat("+1", 30000), "nests deeper than 200 levels"},
		"elseif":      {"if a then " + strings.Repeat("elseif a then ", 4000) + "end", "nests deeper than 200 levels"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Compile("customization web", "F", tc.source)
			if tc.want == "" {
				return // the syntax tree has no parentheses; compiling must not crash
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "customization web") {
				t.Fatalf("got %v, want an error naming the customization and saying %q", err, tc.want)
			}
		})
	}
	long := "function F() return ''" + strings.Repeat(`.."x"`, 2000) + " end"
	if out, err := runScript(t, NewRunner(Limits{}, nil), long, 1); err != nil || len(out[0].(string)) != 2000 {
		t.Fatalf("a long chain of concatenations: %v", err)
	}
}

// TestHostileScripts checks that the time and memory of any script are bounded.
func TestHostileScripts(t *testing.T) {
	r := NewRunner(Limits{Timeout: 250 * time.Millisecond}, nil)
	cases := map[string]string{
		"loop":                  `while true do end`,
		"caught loop":           `while true do pcall(function() while true do end end) end`,
		"handled loop":          `while true do xpcall(function() while true do end end, function() while true do end end) end`,
		"recursion":             `local function f() return 1 + f() end f()`,
		"recursion by pcall":    `local function f() pcall(f) f() end f()`,
		"recursion by sort":     `local function f() table.sort({3, 2, 1}, f) return true end f()`,
		"recursion by gsub":     `local function f() return (("x"):gsub("x", f)) end f()`,
		"tail calls":            `local function f() return f() end f()`,
		"doubling":              `local s = "x" while true do s = s .. s end`,
		"repetition":            `return ("x"):rep(1e12)`,
		"repetitions":           `local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(1e6) end`,
		"join":                  `local t = {} for i = 1, 1000 do t[i] = ("x"):rep(10000) end local s = table.concat(t) while true do s = table.concat({s, s}) end`,
		"substitution":          `return (("x"):rep(1e6):gsub("x", ("y"):rep(1e6)))`,
		"captured substitution": `return (("x"):rep(1e6):gsub(".*", ("%0"):rep(1e6)))`,
		"format":                `local t = {} for i = 1, 1e9 do t[i] = string.format("%99d", i) end`,
		"format of long text":   `local s = ("x"):rep(1e6) local t = {} for i = 1, 1e9 do t[i] = string.format("%s%s%s", s, s, s) end`,
		"upper":                 `local s = ("x"):rep(1e6) local t = {} for i = 1, 1e9 do t[i] = s:upper() end`,
		"list":                  `local t = {} for i = 1, 1e9 do t[i] = i end`,
		"list by insert":        `local t = {} for i = 1, 1e9 do table.insert(t, i) end`,
		"list by front insert":  `local t = {} for i = 1, 1e9 do table.insert(t, 1, i) end`,
		"far position":          `local t = {} t[67108863] = 1`,
		"far positions":         `local keep = {} for i = 1, 1e9 do local t = {} t[30000] = 1 keep[i] = t end`,
		"far in a constructor":  `local k = 67108863 return {[k] = 1}`,
		"far by number":         `return {[67108863] = 1}`,
		"far in multiple":       `local t = {} t[1], t[67108863] = 1, 2`,
		"far by insert":         `table.insert({}, 67108863, 1)`,
		"tables":                `local t = {} for i = 1, 1e9 do t[i] = {} end`,
		"nested tables":         `local t = {} while true do t = {t, {}, {}, {}} end`,
		"map":                   `local t = {} for i = 1, 1e9 do t["k" .. i] = i end`,
		"constant names":        `local keep = {} while true do local t = {} keep[#keep + 1] = t t.a = 1 t.b = 1 t.c = 1 t.d = 1 t.e = 1 t.f = 1 t.g = 1 t.h = 1 t.i = 1 t.j = 1 end`,
		"keys":                  `local t = {} while true do t[{}] = 1 end`,
		"globals":               `for i = 1, 1e9 do _G["g" .. i] = i end`,
		"closures":              `local t = {} for i = 1, 1e9 do t[i] = function() return i end end`,
		"unpack":                `return unpack({}, 1, 1e9)`,
		"varargs":               `local function f(...) return f(1, ...) end f()`,
		"packed varargs":        `local function f(...) local t = {...} return f(1, ...) end f()`,
		"bytes":                 `return ("x"):rep(1e6):byte(1, -1)`,
		"backtracking":          `return ("a"):rep(1000):match(".-.-.-.-.-.-b")`,
		"greedy backtracking":   `return ("a"):rep(1000):match("a*a*a*a*a*a*b")`,
		"deep pattern":          `return ("a"):rep(1000):match(("a?"):rep(1000))`,
		"sets":                  `return ("a"):rep(10000):match(("[" .. ("b"):rep(10000) .. "]?"):rep(150) .. "c")`,
		"balance":               `return ("("):rep(100000):find("%b()")`,
		"plain search":          `local s = ("a"):rep(1e6) for i = 1, 1e9 do s:find("b", 1, true) end`,
		"sort":                  `local t = {} for i = 1, 20000 do t[i] = i % 7 end for i = 1, 1e9 do table.sort(t) end`,
		"bad order":             `local t = {} for i = 1, 1000 do t[i] = i end while true do table.sort(t, function() return true end) end`,
		"comparison":            `local s = ("x"):rep(1e6) local u = ("x"):rep(1e6) while true do local x = s < u end`,
		"replaced guard":        `_G["\0concat"] = nil local s = "x" while true do s = s .. s end`,
		"own guard":             `_G["\0store"] = function(t, k, v) end _G["\0table"] = function(t) return t end local t = {} while true do t = {t, {}, {}} end`,
		"cycle":                 `local t = {} t.t = t return t`,
		"fan":                   `local t = {"x"} for i = 1, 40 do t = {t, t} end return t`,
		"fan of text":           `local s = ("x"):rep(1e6) local t = {} for i = 1, 10000 do t[i] = s end return t`,
		"fan of keys":           `local s = ("x"):rep(1e6) local t = {} for i = 1, 10000 do t[i] = {[s] = 1} end return t`,
		"function":              `return function() end`,
		"inside":                `return {f = {function() end}}`,
		"mixed":                 `return {1, a = 2}`,
		"holes":                 `return {1, nil, 3}`,
		"fraction as key":       `return {[1.5] = 1}`,
		"not a number":          `return {0/0}`,
		"infinity":              `return 1/0`,
		"dates":                 `local f = ("%c"):rep(100000) for i = 1, 1e9 do os.date(f) end`,
		"requirements":          `local t = {spec = {containers = {}}} for i = 1, 5000 do t.spec.containers[i] = {resources = {requests = {cpu = "1"}}} end while true do kube.accuratePodRequirements(t) end`,
		"table guard bypass":    `local mt = ("").x; return ("").x.y`,
	}
	for name, body := range cases {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := runScript(t, r, "function F(obj) "+body+" end", 1, map[string]any{"a": int64(1)})
			if err == nil || !strings.Contains(err.Error(), "customization web/F") {
				t.Fatalf("got %v, want an error naming the customization", err)
			}
			runtime.ReadMemStats(&after)
			// The total of all allocations, garbage included, bounds the memory in use.
			if total := (after.TotalAlloc - before.TotalAlloc) >> 20; total > 512 {
				t.Errorf("it allocated %d MiB", total)
			}
		})
	}
	if out, err := runScript(t, NewRunner(Limits{}, nil), `function F(a) return a.n + 1 end`, 1, map[string]any{"n": int64(41)}); err != nil || out[0] != int64(42) {
		t.Fatalf("after hostile scripts an honest one gave %v, %v", out, err)
	}
}

func TestTimeAndCancellation(t *testing.T) {
	slow := NewRunner(Limits{Timeout: 20 * time.Millisecond, Steps: 1 << 60}, nil)
	if _, err := runScript(t, slow, `function F() while true do end end`, 1); err == nil || !strings.Contains(err.Error(), "more than 20ms") {
		t.Fatalf("got %v, want an error about the time", err)
	}
	script, err := Compile("c", "F", `function F() while true do end end`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	patient := NewRunner(Limits{Timeout: time.Hour, Steps: 1 << 60}, nil)
	if _, err := patient.Call(ctx, script, 1); err == nil {
		t.Fatal("a cancelled call returned no error")
	}
}

// The step limit ends a script long before its timeout: a loop costs milliseconds, however long the timeout is.
func TestStepsAndMemory(t *testing.T) {
	r := NewRunner(Limits{Timeout: time.Minute, Steps: 5000, Memory: 1 << 20}, nil)
	for body, want := range map[string]string{
		`while true do end`: "more than 5000 steps",
		`while true do pcall(function() error("x") end) end`:    "more than 5000 steps",
		`local s = ("x"):rep(1e5) while true do s = s .. s end`: "more than 1048576 bytes",
	} {
		if _, err := runScript(t, r, "function F() "+body+" end", 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
	if out, err := runScript(t, r, `function F() local n = 0 for i = 1, 100 do n = n + i end return n end`, 1); err != nil || out[0] != int64(5050) {
		t.Errorf("a short script returned %v, %v", out, err)
	}
}

func TestCallsShareNothing(t *testing.T) {
	r := NewRunner(Limits{Concurrency: 1}, nil)
	source := `
counter = (counter or 0) + 1
local seen = 0
function F(obj)
  seen = seen + 1
  total = (total or 0) + 1
  string.marker = (string.marker or 0) + 1
  table.marker = (table.marker or 0) + 1
  require("kube").marker = (require("kube").marker or 0) + 1
  _G.pcall = nil
  obj.x = (obj.x or 0) + 1
  return {counter, seen, total, string.marker, table.marker, ("").marker or 1, obj.x, 1}
end`
	script, err := Compile("c", "F", source)
	if err != nil {
		t.Fatal(err)
	}
	arg := map[string]any{}
	for range 3 {
		out, err := r.Call(context.Background(), script, 1, arg)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range out[0].([]any) {
			if n != int64(1) {
				t.Fatalf("value %d is %v after another call", i, n)
			}
		}
	}
	if len(arg) != 0 {
		t.Fatalf("the argument changed to %v", arg)
	}
}
