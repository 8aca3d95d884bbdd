package merge

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// covers reports whether live has everything that desired asks for. Live may have more: what the member added. Null and
// empty ask for nothing, because API servers drop them.
func covers(live, desired any, s *shape) bool {
	switch want := desired.(type) {
	case nil:
		return true
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return live == nil && len(want) == 0
		}
		for name, value := range want {
			if !covers(have[name], value, s.field(name)) {
				return false
			}
		}
		return true
	case []any:
		have, ok := live.([]any)
		if !ok {
			return live == nil && len(want) == 0
		}
		return coversList(have, want, s)
	default:
		return equalScalars(live, desired, s)
	}
}

func coversList(live, desired []any, s *shape) bool {
	list := &listShape{}
	if s != nil && s.list != nil {
		list = s.list
	}
	switch list.kind {
	case setList, keyedList:
		if covered, ok := coversItems(live, desired, list); ok {
			return covered
		}
	case additiveList:
		for _, want := range desired {
			if !coveredByAny(live, want, list.items) {
				return false
			}
		}
		return true
	case atomicList:
	}
	if len(live) != len(desired) {
		return false
	}
	for i := range desired {
		if !covers(live[i], desired[i], list.items) {
			return false
		}
	}
	return true
}

// coversItems reports whether every desired item has its counterpart in live, in the same order. Ok is false if items
// have no identity.
func coversItems(live, desired []any, list *listShape) (covered, ok bool) {
	next := 0
	for i, want := range desired {
		id, ok := list.identify(want)
		if !ok {
			return false, false
		}
		found := false
		for ; next < len(live) && !found; next++ {
			liveID, ok := list.identify(live[next])
			if !ok {
				return false, false
			}
			found = liveID == id
		}
		if !found || !covers(live[next-1], desired[i], list.items) {
			return false, true
		}
	}
	return true, true
}

func coveredByAny(live []any, want any, s *shape) bool {
	for _, have := range live {
		if covers(have, want, s) {
			return true
		}
	}
	return false
}

// equal reports whether two values are equivalent.
func equal(a, b any, s *shape) bool { return covers(a, b, s) && covers(b, a, s) }

func equalScalars(a, b any, s *shape) bool {
	if a == nil || b == nil {
		return a == b
	}
	switch a.(type) {
	case map[string]any, []any:
		return false
	}
	if a == b {
		return true
	}
	if s.typeName() == quantityType {
		return equalQuantities(a, b)
	}
	x, isNumber := number(a)
	y, areNumbers := number(b)
	return isNumber && areNumbers && x == y
}

func number(value any) (float64, bool) {
	switch n := value.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	default:
		return 0, false
	}
}

func equalQuantities(a, b any) bool {
	x, errX := resource.ParseQuantity(fmt.Sprint(a))
	y, errY := resource.ParseQuantity(fmt.Sprint(b))
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

// identify returns the identity of an item of the list: the value of a scalar, the key fields of an object. It fails
// for items without their key.
func (l *listShape) identify(item any) (string, bool) {
	if l.kind == setList {
		return scalarIdentity(item)
	}
	object, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	if len(l.keys) == 1 {
		return scalarIdentity(l.keys[0].of(object))
	}
	var id strings.Builder
	for _, key := range l.keys {
		part, ok := scalarIdentity(key.of(object))
		if !ok {
			return "", false
		}
		id.WriteString(strconv.Itoa(len(part)))
		id.WriteByte(':')
		id.WriteString(part)
	}
	return id.String(), true
}

func (k listKey) of(object map[string]any) any {
	if value := object[k.name]; value != nil {
		return value
	}
	return k.defaultValue
}

func scalarIdentity(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case int:
		return strconv.Itoa(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	default:
		return "", false
	}
}
