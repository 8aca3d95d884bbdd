package lua

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

// Lua has one kind of table where JSON has objects and lists, no null, and no integers beyond 2^53. What a table was
// before it became one is kept where a table has its metatable: as userdata there, it is invisible to scripts and
// without effect on the machine, and it follows the table wherever a script moves it.

// converter carries values into one call of a script and back.
type converter struct {
	state  *glua.LState
	null   *glua.LUserData
	limits Limits
	inputs []any
	// large holds integers that a Lua number cannot, by the number that stands for them.
	large map[glua.LNumber]int64
	keys  []string

	nodes int
	bytes int
}

// undecided is an empty table that may be an object or a list.
type undecided struct{}

const exactIntegers = 1 << 53

func (c *converter) toLua(value any) (glua.LValue, error) {
	switch v := value.(type) {
	case nil:
		return glua.LNil, nil
	case string:
		return glua.LString(v), nil
	case bool:
		return glua.LBool(v), nil
	case int64:
		return c.integer(v), nil
	case int32:
		return glua.LNumber(v), nil
	case int:
		return c.integer(int64(v)), nil
	case float64:
		return glua.LNumber(v), nil
	case map[string]any:
		return c.object(v)
	case []any:
		return c.list(v)
	}
	return nil, fmt.Errorf("a value of type %T cannot be passed to a script", value)
}

func (c *converter) integer(v int64) glua.LNumber {
	n := glua.LNumber(v)
	if v > exactIntegers || v < -exactIntegers {
		if c.large == nil {
			c.large = map[glua.LNumber]int64{}
		}
		c.large[n] = v
	}
	return n
}

func (c *converter) object(m map[string]any) (glua.LValue, error) {
	t := c.state.CreateTable(0, len(m))
	t.Metatable = &glua.LUserData{Value: m}
	// Sorted, so that a script that walks an object always sees the same order.
	first := len(c.keys)
	for key := range m {
		c.keys = append(c.keys, key)
	}
	last := len(c.keys)
	slices.Sort(c.keys[first:last])
	for i := first; i < last; i++ {
		key := c.keys[i]
		v, err := c.toLua(m[key])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if v != glua.LNil {
			t.RawSetString(key, v)
		}
	}
	c.keys = c.keys[:first]
	return t, nil
}

func (c *converter) list(list []any) (glua.LValue, error) {
	t := c.state.CreateTable(len(list), 0)
	t.Metatable = &glua.LUserData{Value: list}
	for i, item := range list {
		v, err := c.toLua(item)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if v == glua.LNil {
			v = c.null
		}
		t.Append(v)
	}
	return t, nil
}

// fromLua returns the JSON value a Lua value stands for.
func (c *converter) fromLua(value glua.LValue) (any, error) {
	c.nodes, c.bytes = 0, 0
	return c.value(value, nil, nil)
}

func (c *converter) value(value glua.LValue, was any, path []string) (any, error) {
	if c.nodes++; c.nodes > c.limits.ResultNodes {
		return nil, fmt.Errorf("the result has more than %d values", c.limits.ResultNodes)
	}
	switch v := value.(type) {
	case *glua.LNilType:
		return nil, nil
	case glua.LBool:
		return bool(v), nil
	case glua.LNumber:
		return c.number(v, was, path)
	case glua.LString:
		return string(v), c.text(len(v))
	case *glua.LTable:
		return c.table(v, path)
	case *glua.LUserData:
		if v == c.null {
			return nil, nil
		}
	}
	return nil, fmt.Errorf("%s: a %s cannot be part of a result", where(path), value.Type())
}

func (c *converter) text(length int) error {
	if c.bytes += length; c.bytes > c.limits.ResultBytes {
		return fmt.Errorf("the result has more than %d bytes of text", c.limits.ResultBytes)
	}
	return nil
}

func (c *converter) number(n glua.LNumber, was any, path []string) (any, error) {
	switch original := was.(type) {
	case int64:
		if glua.LNumber(original) == n {
			return original, nil
		}
	case float64:
		if glua.LNumber(original) == n {
			return original, nil
		}
	}
	if original, ok := c.large[n]; ok {
		return original, nil
	}
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%s: %v is not a number JSON can hold", where(path), f)
	}
	if f == math.Trunc(f) && f >= math.MinInt64 && f < math.MaxInt64 {
		return int64(f), nil
	}
	return f, nil
}

func (c *converter) table(t *glua.LTable, path []string) (any, error) {
	if len(path) > maxValueDepth {
		return nil, fmt.Errorf("the result nests deeper than %d levels or contains itself", maxValueDepth)
	}
	var origin any
	if mark, ok := t.Metatable.(*glua.LUserData); ok {
		origin = mark.Value
	}
	length := t.MaxN()
	if length > 0 {
		return c.fromList(t, length, origin, path)
	}
	key, value := t.Next(glua.LNil)
	if key == glua.LNil {
		return c.empty(origin, path), nil
	}
	was, _ := origin.(map[string]any)
	out := make(map[string]any, len(was))
	for ; key != glua.LNil; key, value = t.Next(key) {
		name, ok := key.(glua.LString)
		if !ok {
			return nil, fmt.Errorf("%s: a table with the key %s is neither a list nor an object", where(path), key.String())
		}
		if err := c.text(len(name)); err != nil {
			return nil, err
		}
		converted, err := c.value(value, was[string(name)], append(path, string(name)))
		if err != nil {
			return nil, err
		}
		if _, drop := converted.(undecided); !drop {
			out[string(name)] = converted
		}
	}
	keepNulls(out, was)
	return out, nil
}

// keepNulls restores the fields that were null, which a Lua table cannot hold.
func keepNulls(out, was map[string]any) {
	for name, value := range was {
		if _, set := out[name]; value == nil && !set {
			out[name] = nil
		}
	}
}

func (c *converter) fromList(t *glua.LTable, length int, origin any, path []string) (any, error) {
	if key, _ := t.Next(glua.LNumber(length)); key != glua.LNil {
		return nil, fmt.Errorf("%s: a table with both positions and the key %s is neither a list nor an object", where(path), key.String())
	}
	was, _ := origin.([]any)
	// Not sized by length: a sparse table may claim far more than it has.
	out := make([]any, 0, min(length, 64))
	for i := 1; i <= length; i++ {
		item := t.RawGetInt(i)
		if item == glua.LNil {
			return nil, fmt.Errorf("%s: the list has no element %d of %d", where(path), i, length)
		}
		var before any
		if i <= len(was) {
			before = was[i-1]
		}
		converted, err := c.value(item, before, append(path, "["+strconv.Itoa(i-1)+"]"))
		if err != nil {
			return nil, err
		}
		if _, open := converted.(undecided); open {
			converted = map[string]any{}
		}
		out = append(out, converted)
	}
	return out, nil
}

// empty decides what an empty table is: what it was, or else what the inputs hold in the same place.
func (c *converter) empty(origin any, path []string) any {
	switch o := origin.(type) {
	case []any:
		return []any{}
	case map[string]any:
		out := map[string]any{}
		keepNulls(out, o)
		return out
	}
	if len(path) == 0 {
		return undecided{} // the caller knows what it asked for
	}
	for _, input := range c.inputs {
		switch c.inPlace(input, path).(type) {
		case []any:
			return []any{}
		case map[string]any:
			return map[string]any{}
		}
	}
	return undecided{}
}

// inPlace returns the value at a path; any element of a list stands for all of them. The search counts towards the
// size of the result: a script chooses how often it runs.
func (c *converter) inPlace(value any, path []string) any {
	if c.nodes++; c.nodes > c.limits.ResultNodes {
		return nil
	}
	if len(path) == 0 {
		return value
	}
	if list, ok := value.([]any); ok && strings.HasPrefix(path[0], "[") {
		for _, item := range list {
			if found := c.inPlace(item, path[1:]); found != nil {
				return found
			}
		}
		return nil
	}
	m, _ := value.(map[string]any)
	child, ok := m[path[0]]
	if !ok {
		return nil
	}
	return c.inPlace(child, path[1:])
}

func where(path []string) string {
	if len(path) == 0 {
		return "the result"
	}
	var b strings.Builder
	for i, part := range path {
		if i > 0 && !strings.HasPrefix(part, "[") {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}
