package main

import (
	"testing"
	"time"
)

// TestSmall runs the benchmark at a small size.
func TestSmall(t *testing.T) {
	o, err := parse([]string{"--clusters=3,7", "--nodes=10", "--cold=2500", "--duration=5ms", "--bindings=10", "--workloads=15"})
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	cold, err := simulateCold(2000)
	if err != nil {
		t.Fatal(err)
	}
	if cold.plain <= 0 || cold.bytesPerNode <= 0 {
		t.Errorf("nothing was measured: %+v", cold)
	}
}

func TestFlags(t *testing.T) {
	if o, err := parse(nil); err != nil || len(o.clusters) != 3 || o.duration < time.Second {
		t.Errorf("defaults = %+v: %v", o, err)
	}
	for _, invalid := range []string{"--clusters=many", "--clusters=0", "--nodes=0", "--cores=0", "--bindings=-1", "--workloads=0", "--writers=0"} {
		if _, err := parse([]string{invalid}); err == nil {
			t.Errorf("%s is accepted", invalid)
		}
	}
}
