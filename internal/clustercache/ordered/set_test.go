package ordered_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/clustercache/ordered"
)

// descending is an order that differs from the numeric one.
func descending(a, b uint32) int { return cmp.Compare(b, a) }

func TestSetIsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := ordered.NewSet(descending)
		defer set.Close()
		want := map[uint32]map[uint32]bool{}
		size := 0
		terms, members := rapid.Uint32Range(0, 3), rapid.Uint32Range(1, 600)
		insert := func(t *rapid.T, term, member uint32) {
			if want[term] == nil {
				want[term] = map[uint32]bool{}
			}
			if set.Insert(term, member) == want[term][member] {
				t.Fatalf("inserting %d of %d, there before: %t", member, term, want[term][member])
			}
			if !want[term][member] {
				size++
			}
			want[term][member] = true
		}
		remove := func(t *rapid.T, term, member uint32) {
			if set.Delete(term, member) != want[term][member] {
				t.Fatalf("deleting %d of %d, there before: %t", member, term, want[term][member])
			}
			if want[term][member] {
				size--
				delete(want[term], member)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) { insert(t, terms.Draw(t, "term"), members.Draw(t, "member")) },
			"insert many": func(t *rapid.T) {
				term, first, step := terms.Draw(t, "term"), members.Draw(t, "first"), rapid.Uint32Range(1, 7).Draw(t, "step")
				for i := range uint32(200) {
					insert(t, term, (first+i*step)%600+1)
				}
			},
			"delete": func(t *rapid.T) { remove(t, terms.Draw(t, "term"), members.Draw(t, "member")) },
			"delete many": func(t *rapid.T) {
				term, first := terms.Draw(t, "term"), members.Draw(t, "first")
				for i := range uint32(150) {
					remove(t, term, (first+i)%600+1)
				}
			},
			"read": func(t *rapid.T) {
				term, from, limit := terms.Draw(t, "term"), members.Draw(t, "from"), rapid.IntRange(1, 700).Draw(t, "limit")
				var expected []uint32
				for member := range want[term] {
					if member <= from {
						expected = append(expected, member)
					}
				}
				slices.SortFunc(expected, descending)
				expected = expected[:min(limit, len(expected))]
				var got []uint32
				set.Ascend(term, func(member uint32) bool { return member > from }, func(member uint32) bool {
					got = append(got, member)
					return len(got) < limit
				})
				if !slices.Equal(got, expected) {
					t.Fatalf("got %v, want %v", got, expected)
				}
			},
			"": func(t *rapid.T) {
				if set.Len() != size {
					t.Fatalf("%d pairs, want %d", set.Len(), size)
				}
			},
		})
		for term, members := range want {
			var got int
			set.Ascend(term, nil, func(uint32) bool { got++; return true })
			if got != len(members) {
				t.Fatalf("%d members of %d, want %d", got, term, len(members))
			}
		}
	})
}
