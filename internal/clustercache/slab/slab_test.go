package slab_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/clustercache/slab"
)

func drawBytes(t *rapid.T, name string) []byte {
	size := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 3000), rapid.SampledFrom([]int{32_765, 32_766, 32_767, 40_000})).Draw(t, name)
	return bytes.Repeat([]byte{byte(rapid.IntRange(0, 255).Draw(t, "fill"))}, size)
}

func TestArenaHoldsWhatWasPut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var arena slab.Arena
		defer arena.Close()
		held := map[slab.Ref][]byte{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				b := drawBytes(t, "size")
				for range min(rapid.SampledFrom([]int{1, 1, 40}).Draw(t, "times"), 1+4000/len(b)) {
					ref, err := arena.Put(b)
					if err != nil {
						t.Fatal(err)
					}
					if _, taken := held[ref]; taken || ref == 0 {
						t.Fatalf("%d is allocated twice", ref)
					}
					held[ref] = b
				}
			},
			"free": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				ref := rapid.SampledFrom(slices.Sorted(maps.Keys(held))).Draw(t, "which")
				arena.Free(ref)
				delete(held, ref)
			},
			"": func(t *rapid.T) {
				for ref, b := range held {
					if !bytes.Equal(arena.Get(ref), b) {
						t.Fatalf("%d is %d bytes of %x, want %d of %x", ref, len(arena.Get(ref)), arena.Get(ref)[:1], len(b), b[:1])
					}
				}
			},
		})
		for ref := range held {
			arena.Free(ref)
		}
		if arena.Used() != 0 {
			t.Fatalf("%d bytes of an empty arena are in use", arena.Used())
		}
		// The first span stays.
		if arena.Reserved() > 64<<10 {
			t.Fatalf("an empty arena keeps %d bytes", arena.Reserved())
		}
	})
}

func TestArenaUsesMemoryAgain(t *testing.T) {
	var arena slab.Arena
	defer arena.Close()
	var most int64
	for round := range 20 {
		var refs []slab.Ref
		for i := range 2000 {
			ref, err := arena.Put(make([]byte, 100+(i*7+round*31)%900))
			if err != nil {
				t.Fatal(err)
			}
			refs = append(refs, ref)
		}
		if round == 0 {
			most = arena.Reserved()
		}
		for _, ref := range refs {
			arena.Free(ref)
		}
	}
	if most = max(most, 1<<20) * 3; arena.Reserved() > most {
		t.Errorf("the arena grew to %d bytes, want at most %d", arena.Reserved(), most)
	}
}

func TestTableKeepsRecords(t *testing.T) {
	type record struct{ a, b uint64 }
	rapid.Check(t, func(t *rapid.T) {
		var table slab.Table[record]
		defer table.Close()
		held := map[uint32]uint64{}
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"new": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 1, 5000}).Draw(t, "times") {
					id := table.New()
					if _, taken := held[id]; taken || id == 0 || *table.At(id) != (record{}) {
						t.Fatalf("%d is allocated twice, or not empty", id)
					}
					next++
					*table.At(id) = record{next, ^next}
					held[id] = next
				}
			},
			"free": func(*rapid.T) {
				for id := range held {
					table.Free(id)
					delete(held, id)
					break
				}
			},
			"": func(t *rapid.T) {
				if table.Len() != len(held) {
					t.Fatalf("%d records, want %d", table.Len(), len(held))
				}
				for id, value := range held {
					if *table.At(id) != (record{value, ^value}) {
						t.Fatalf("%d is %v", id, *table.At(id))
					}
				}
			},
		})
	})
}

func TestInternerNumbersDistinctStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var arena slab.Arena
		defer arena.Close()
		interner := slab.NewInterner(&arena)
		defer interner.Close()
		refs, ids := map[string]int{}, map[string]uint32{}
		word := rapid.Map(rapid.IntRange(0, 150), func(i int) string { return fmt.Sprint("word", i) })
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				s := word.Draw(t, "word")
				id, fresh, err := interner.Acquire([]byte(s))
				if err != nil {
					t.Fatal(err)
				}
				if fresh != (refs[s] == 0) || !fresh && ids[s] != id {
					t.Fatalf("%s is %d, fresh: %t", s, id, fresh)
				}
				refs[s]++
				ids[s] = id
			},
			"release": func(t *rapid.T) {
				s := word.Draw(t, "word")
				if refs[s] == 0 {
					return
				}
				refs[s]--
				forgotten := false
				last := interner.Release(ids[s], func() { forgotten = string(interner.Get(ids[s])) == s })
				if last != (refs[s] == 0) || forgotten != last {
					t.Fatalf("%s: last %t, forgotten %t", s, last, forgotten)
				}
			},
			"": func(t *rapid.T) {
				distinct := 0
				for s, count := range refs {
					id, ok := interner.Lookup([]byte(s))
					if ok != (count > 0) {
						t.Fatalf("%s is known: %t, references: %d", s, ok, count)
					}
					if ok {
						distinct++
						if id != ids[s] || string(interner.Get(id)) != s || interner.Refs(id) != count {
							t.Fatalf("%d is %q", id, interner.Get(id))
						}
					}
				}
				if interner.Len() != distinct {
					t.Fatalf("%d strings, want %d", interner.Len(), distinct)
				}
			},
		})
	})
}
