package router

import (
	"slices"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/gateway/protection"
)

func TestUnion(t *testing.T) {
	at := func(minute int, from, to int64) protection.Drop {
		return protection.Drop{Time: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC), From: from, To: to}
	}
	first, second, third := at(1, 10, 8), at(2, 8, 7), at(3, 7, 5)
	for name, test := range map[string]struct{ a, b, want []protection.Drop }{
		"none":       {nil, nil, nil},
		"one side":   {nil, []protection.Drop{first}, []protection.Drop{first}},
		"both":       {[]protection.Drop{first, second}, []protection.Drop{first, third}, []protection.Drop{first, second, third}},
		"older ones": {[]protection.Drop{third}, []protection.Drop{first, second}, []protection.Drop{first, second, third}},
		"the same":   {[]protection.Drop{first}, []protection.Drop{first}, []protection.Drop{first}},
	} {
		if got := union(test.a, test.b); !slices.EqualFunc(got, test.want, func(x, y protection.Drop) bool { return x.Time.Equal(y.Time) && x.From == y.From && x.To == y.To }) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
