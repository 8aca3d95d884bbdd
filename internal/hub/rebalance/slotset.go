package rebalance

import (
	"sync"

	"github.com/cellplane/cellplane/internal/slots"
)

// slotSet is a set of slots, as a topology's status publishes it: a bitmap, lowest bit first.
type slotSet struct {
	mu   sync.Mutex
	bits [slots.Count / 8]byte
}

func (s *slotSet) add(slot slots.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bits[slot/8] |= 1 << (slot % 8)
}

func (s *slotSet) has(slot slots.Slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bits[slot/8]>>(slot%8)&1 == 1
}

// bitmap returns a copy without trailing zeros.
func (s *slotSet) bitmap() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := len(s.bits)
	for end > 0 && s.bits[end-1] == 0 {
		end--
	}
	return append([]byte(nil), s.bits[:end]...)
}
