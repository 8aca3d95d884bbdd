package position

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"pgregory.net/rapid"
)

func positions(cells int) *rapid.Generator[Position] {
	return rapid.Custom(func(t *rapid.T) Position {
		versions := rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64Range(0, MaxVersion)), max(cells, 1), max(cells, 6)).Draw(t, "versions")
		if cells > 0 {
			versions = versions[:cells]
		}
		return Position{Epoch: rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, MaxEpoch)).Draw(t, "epoch"), Versions: versions}
	})
}

func encode(t interface {
	Helper()
	Fatal(args ...any)
}, p Position,
) string {
	t.Helper()
	s, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEncodeVectors(t *testing.T) {
	for want, p := range map[string]Position{
		"1" + "0000000007" + "0000000000000000042":                                 {Epoch: 7, Versions: []uint64{42}},
		"1" + "0000000000" + "0000000000000000000" + "9223372036854775807":         {Versions: []uint64{0, math.MaxInt64}},
		"1" + "9999999999" + "0000000000000000001" + "0000000000000000020":         {Epoch: MaxEpoch, Versions: []uint64{1, 20}},
		"1" + "0000000012" + strings.Repeat("0000000000000000005", MaxCells):       {Epoch: 12, Versions: slices.Repeat([]uint64{5}, MaxCells)},
		"1" + "0000000001" + strings.Repeat("1234567890123456789", 3):              {Epoch: 1, Versions: slices.Repeat([]uint64{1234567890123456789}, 3)},
		"1" + "0000000002" + "0000000000000000010" + strings.Repeat("0", 18) + "9": {Epoch: 2, Versions: []uint64{10, 9}},
	} {
		if got := encode(t, p); got != want {
			t.Errorf("encoding %+v gives %s, want %s", p, got, want)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, p := range map[string]Position{
		"no cells":         {Epoch: 1},
		"too many cells":   {Epoch: 1, Versions: make([]uint64, MaxCells+1)},
		"negative epoch":   {Epoch: -1, Versions: []uint64{1}},
		"epoch too high":   {Epoch: MaxEpoch + 1, Versions: []uint64{1}},
		"version too high": {Epoch: 1, Versions: []uint64{1, MaxVersion + 1}},
	} {
		if s, err := p.Encode(); err == nil {
			t.Errorf("%s: got %s, want an error", name, s)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := positions(0).Draw(t, "position")
		s := encode(t, p)
		got, err := Parse(s)
		if err != nil || got.Epoch != p.Epoch || !slices.Equal(got.Versions, p.Versions) {
			t.Fatalf("Parse(%s) = %+v, %v; want %+v", s, got, err, p)
		}
	})
}

func TestCompareAgreesWithClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := positions(0).Draw(t, "a"), positions(0).Draw(t, "b")
		sa, sb := encode(t, a), encode(t, b)
		want, err := resourceversion.CompareResourceVersion(sa, sb)
		if err != nil {
			t.Fatal(err)
		}
		if got := Compare(a, b); got != want {
			t.Fatalf("Compare = %d, clients get %d", got, want)
		}
		ia, _ := new(big.Int).SetString(sa, 10)
		ib, _ := new(big.Int).SetString(sb, 10)
		if ia.Cmp(ib) != want {
			t.Fatal("the integers compare differently")
		}
	})
}

func TestAdvancingGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := positions(3).Draw(t, "position")
		next := p.Clone()
		cell := rapid.IntRange(0, 2).Draw(t, "cell")
		if next.Versions[cell] == MaxVersion {
			return
		}
		next.Versions[cell] = rapid.Uint64Range(p.Versions[cell]+1, MaxVersion).Draw(t, "version")
		if Compare(next, p) != 1 || !next.Covers(p) || p.Covers(next) {
			t.Fatalf("%+v is not greater than %+v", next, p)
		}
	})
}

func TestPlainVersionsAreLessThanPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.Uint64Range(1, math.MaxUint64).Draw(t, "plain")
		s := new(big.Int).SetUint64(plain).String()
		if kind, err := Classify(s); kind != Plain && kind != Object || err != nil {
			t.Fatalf("Classify(%s) = %d, %v", s, kind, err)
		}
		if _, err := Parse(s); !errors.Is(err, ErrForeign) {
			t.Fatalf("%s was parsed as a position (%v)", s, err)
		}
		c, err := resourceversion.CompareResourceVersion(s, encode(t, positions(0).Draw(t, "position")))
		if c != -1 || err != nil {
			t.Fatalf("a plain resourceVersion compares as %d (%v)", c, err)
		}
	})
}

func TestClassify(t *testing.T) {
	long := encode(t, Position{Epoch: 3, Versions: []uint64{1, 2}})
	for _, test := range []struct {
		s    string
		kind Kind
		err  error
	}{
		{"", Unset, nil},
		{"0", Any, nil},
		{"1", Plain, nil},
		{"999999999999999", Plain, nil},
		{"1000000000000000", Object, nil},
		{"18446744073709551615", Object, nil},
		{"18446744073709551616", 0, ErrMalformed},
		{"99999999999999999999", 0, ErrMalformed},
		{"100000000000000000000", 0, ErrForeign},
		{long, Merged, nil},
		{long + "0", 0, ErrForeign},
		{long[:len(long)-1], 0, ErrForeign},
		{"2" + long[1:], 0, ErrForeign},
		{"0" + long[1:], 0, ErrMalformed},
		{"1" + "0000000001", Plain, nil},
		{"1" + "0000000001" + "9223372036854775808", 0, ErrForeign},
		{"1" + strings.Repeat("0", epochDigits+versionDigits*(MaxCells+1)), 0, ErrForeign},
		{strings.Repeat("1", 1<<20), 0, ErrForeign},
		{"00", 0, ErrMalformed},
		{"-1", 0, ErrMalformed},
		{"+1", 0, ErrMalformed},
		{" 1", 0, ErrMalformed},
		{"1_000", 0, ErrMalformed},
		{long[:12] + "x" + long[13:], 0, ErrMalformed},
		{"１", 0, ErrMalformed},
	} {
		if kind, err := Classify(test.s); kind != test.kind || !errors.Is(err, test.err) {
			t.Errorf("Classify(%.60q) = %d, %v; want %d, %v", test.s, kind, err, test.kind, test.err)
		}
	}
}

func TestCarry(t *testing.T) {
	p := Position{Epoch: 4, Versions: []uint64{10, 20, 30}}
	got, err := p.Carry(5, []string{"a", "b", "d"}, []string{"a", "c", "d"})
	if want := (Position{Epoch: 5, Versions: []uint64{10, 0, 30}}); err != nil || Compare(got, want) != 0 {
		t.Errorf("Carry = %+v, %v; want %+v", got, err, want)
	}
	if _, err := p.Carry(5, []string{"a"}, []string{"a"}); !errors.Is(err, ErrForeign) {
		t.Errorf("a position with the wrong number of cells was accepted (%v)", err)
	}
	if p.Covers(got) || got.Covers(p) {
		t.Error("positions of different epochs cover each other")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "18446744073709551616", "100000000070000000000000000042", "1" + strings.Repeat("9", 48)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			return
		}
		if again := encode(t, p); again != s {
			t.Fatalf("%s was parsed as %+v, which is encoded as %s", s, p, again)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	p := Position{Epoch: 7, Versions: slices.Repeat([]uint64{123_456_789}, 16)}
	buf := make([]byte, 0, MaxLength)
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = p.Append(buf[:0])
	}
}
