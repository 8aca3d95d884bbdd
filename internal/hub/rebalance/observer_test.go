package rebalance

import (
	"testing"
	"time"
)

func TestCountInterval(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		5 * time.Millisecond:   time.Second, // at the next observation
		100 * time.Millisecond: 20 * time.Second,
		time.Minute:            maxCountInterval,
	} {
		if got := countInterval(took); got != want {
			t.Errorf("a count that took %s is repeated after %s, want %s", took, got, want)
		}
	}
}
