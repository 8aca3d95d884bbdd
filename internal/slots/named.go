package slots

import (
	"iter"

	"github.com/cespare/xxhash/v2"
)

const (
	// suffixMark begins every suffix. It is in no suffix that Kubernetes generates, so that the names never meet.
	suffixMark = '0'
	// suffixAlphabet is that of names which Kubernetes generates: no words arise from it.
	suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	// suffixLength is the length of a suffix after its mark. There are millions of names of this length in every slot.
	suffixLength = 9
)

// Named yields names of a slot: a prefix, and a suffix that gives the name the slot. So an object can be named to be with another one wherever that
// goes. The same seed yields the same names. To find a name takes some hundred microseconds.
func Named(namespace, prefix string, slot Slot, seed uint64) iter.Seq[string] {
	return func(yield func(string) bool) {
		key := make([]byte, 0, len(namespace)+len(prefix)+suffixLength+2)
		key = append(key, namespace...)
		key = append(key, '/')
		start := len(key)
		key = append(key, prefix...)
		key = append(key, suffixMark)
		var digits [suffixLength]byte
		for i := range digits {
			digits[i] = byte(seed % uint64(len(suffixAlphabet)))
			seed /= uint64(len(suffixAlphabet))
			key = append(key, suffixAlphabet[digits[i]])
		}
		suffix := key[len(key)-suffixLength:]
		for {
			if Slot(xxhash.Sum64(key)%Count) == slot && !yield(string(key[start:])) {
				return
			}
			for i := range digits {
				digits[i] = (digits[i] + 1) % byte(len(suffixAlphabet))
				suffix[i] = suffixAlphabet[digits[i]]
				if digits[i] != 0 {
					break
				}
			}
		}
	}
}
