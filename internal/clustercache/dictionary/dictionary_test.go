package dictionary_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cellplane/cellplane/internal/clustercache/dictionary"
)

const samples = 64

// text returns the ith of many similar texts about a subject. Its words repeat only in other texts.
func text(subject, i int) []byte {
	words := noise(subject)
	var b bytes.Buffer
	for at := 0; at+40 <= len(words); at += 40 {
		b.Write(words[at : at+40])
		fmt.Fprint(&b, i*7919%1000+at)
	}
	return b.Bytes()
}

func noise(i int) []byte {
	b := make([]byte, 400)
	x := uint64(i)*2654435761 + 12345
	for j := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[j] = byte(x)
	}
	return b
}

type compressed struct {
	original, bytes []byte
	generation      *dictionary.Generation
}

func compress(codec *dictionary.Codec, b []byte) compressed {
	out, generation := codec.Compress(nil, b)
	return compressed{b, out, generation}
}

func check(t *testing.T, codec *dictionary.Codec, all []compressed) {
	t.Helper()
	for i, c := range all {
		got, err := codec.Generation(c.generation.ID).Decompress(nil, c.bytes)
		if err != nil || !bytes.Equal(got, c.original) {
			t.Fatalf("%d was decoded as %q, %v", i, got, err)
		}
	}
}

func TestGenerationsLiveSideBySide(t *testing.T) {
	codec, err := dictionary.NewCodec(samples)
	if err != nil {
		t.Fatal(err)
	}
	var all []compressed
	for i := range samples {
		all = append(all, compress(codec, text(1, i)))
	}
	codec.Wait()
	if got := codec.Generations(); got != 2 {
		t.Fatalf("%d generations after the first training, want 2", got)
	}
	trained := compress(codec, text(1, samples))
	if before := all[samples-1]; len(trained.bytes)*2 > len(before.bytes) {
		t.Errorf("with a dictionary %d bytes, without %d", len(trained.bytes), len(before.bytes))
	}
	for i := range samples {
		all = append(all, compress(codec, text(1, i)))
	}

	// The next texts have nothing in common with the dictionary.
	for i := 0; codec.Generations() == 2 && i < 100*samples; i++ {
		all = append(all, compress(codec, text(2+i%3, i)))
		codec.Wait()
	}
	if got := codec.Generations(); got != 3 {
		t.Fatalf("%d generations after a change of subject, want 3", got)
	}
	check(t, codec, all)

	for _, c := range append(all, trained) {
		codec.Release(c.generation)
	}
	if got := codec.Generations(); got != 1 {
		t.Errorf("%d generations after all texts are released, want 1", got)
	}
}

func TestSamplesWithNothingInCommon(t *testing.T) {
	codec, err := dictionary.NewCodec(samples)
	if err != nil {
		t.Fatal(err)
	}
	var all []compressed
	for i := range 3 * samples {
		all = append(all, compress(codec, noise(i+10)))
		codec.Wait()
	}
	all = append(all, compress(codec, nil))
	check(t, codec, all)
}
