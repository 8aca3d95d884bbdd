// Package dictionary compresses many small, similar byte strings with dictionaries that it trains on them.
//
// The input changes over time, and an old dictionary becomes less effective. When the ratio falls, the next dictionary is trained on
// recent samples. Data compressed with an earlier one stays as it is: several generations coexist, and a generation is removed when no
// data uses it.
package dictionary

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"
)

const (
	maxDictionary = 48 << 10
	maxDecoded    = 32 << 20
	// maxGenerations is the largest number of dictionaries. No more are trained then.
	maxGenerations = 16
	// degraded is the factor by which the ratio may worsen before the next training.
	degraded = 1.25
	// trainingInterval is the shortest interval between two trainings, in multiples of the number of samples.
	trainingInterval = 8
)

// Generation is a dictionary and its users.
type Generation struct {
	// ID identifies it among the current generations.
	ID uint8

	encoder *zstd.Encoder
	decoder *zstd.Decoder
	// refs counts the data compressed with it.
	refs int
}

// Codec compresses with the latest of its generations.
type Codec struct {
	samples int

	mu      sync.Mutex
	current *Generation
	slots   [maxGenerations]*Generation
	// recent are the samples for the next training, in a ring.
	recent   [][]byte
	at       int
	training bool
	// trainings counts completed trainings.
	trainings int
	// since counts the inputs since the last training. ratio is that right after it, and average the recent one.
	since          int
	ratio, average float64
	trained        sync.WaitGroup
}

// NewCodec returns a codec that trains dictionaries on a number of samples.
func NewCodec(samples int) (*Codec, error) {
	plain, err := newGeneration(nil)
	if err != nil {
		return nil, err
	}
	c := &Codec{samples: samples, current: plain}
	c.slots[0] = plain
	return c, nil
}

// Compress appends b, compressed, to dst. The caller must release the Generation when it no longer needs the result.
func (c *Codec) Compress(dst, b []byte) ([]byte, *Generation) {
	c.mu.Lock()
	generation := c.current
	generation.refs++
	c.mu.Unlock()
	start := len(dst)
	dst = generation.encoder.EncodeAll(b, dst)
	c.observe(b, len(dst)-start)
	return dst, generation
}

// Release removes a reference to a generation.
func (c *Codec) Release(generation *Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	generation.refs--
	c.forget(generation)
}

func (c *Codec) forget(generation *Generation) {
	if generation.refs == 0 && generation != c.current {
		c.slots[generation.ID] = nil
	}
}

// Generation returns the generation with an ID. The caller must have a reference to it.
func (c *Codec) Generation(id uint8) *Generation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots[id]
}

// Decompress appends the decompressed data to dst.
func (g *Generation) Decompress(dst, compressed []byte) ([]byte, error) {
	return g.decoder.DecodeAll(compressed, dst)
}

// Generations counts the generations, including the one without a dictionary.
func (c *Codec) Generations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	alive := 0
	for _, generation := range c.slots {
		if generation != nil {
			alive++
		}
	}
	return alive
}

// Wait waits for a running training.
func (c *Codec) Wait() { c.trained.Wait() }

// observe keeps a sample and trains the next dictionary when it is time.
func (c *Codec) observe(b []byte, compressed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recent) < c.samples {
		c.recent = append(c.recent, bytes.Clone(b))
	} else {
		c.recent[c.at] = append(c.recent[c.at][:0], b...)
		c.at = (c.at + 1) % c.samples
	}
	c.since++
	ratio := float64(compressed) / float64(max(len(b), 1))
	c.average += (ratio - c.average) / float64(min(c.since, c.samples))
	if c.since == c.samples {
		c.ratio = c.average
	}
	if c.training || len(c.recent) < c.samples || !c.due() {
		return
	}
	c.training = true
	samples := make([][]byte, len(c.recent))
	for i := range samples {
		samples[i] = bytes.Clone(c.recent[i])
	}
	c.trained.Go(func() { c.train(samples) })
}

func (c *Codec) due() bool {
	return c.trainings == 0 || c.since >= trainingInterval*c.samples && c.average > degraded*c.ratio && slices.Contains(c.slots[:], nil)
}

func (c *Codec) train(samples [][]byte) {
	generation := build(samples)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.training = false
	c.trainings++
	c.since, c.ratio, c.average = 0, 0, 0
	if generation == nil {
		// Samples without anything in common make no dictionary. The current one stays.
		return
	}
	slot := slices.Index(c.slots[:], nil)
	generation.ID = uint8(slot)
	c.slots[slot] = generation
	before := c.current
	c.current = generation
	c.forget(before)
}

// build trains a dictionary. It returns nil on failure: the library rejects some samples, in several ways.
func build(samples [][]byte) (generation *Generation) {
	defer func() {
		if recover() != nil {
			generation = nil
		}
	}()
	content, err := dict.BuildZstdDict(samples, dict.Options{MaxDictSize: maxDictionary, HashBytes: 6, ZstdDictID: 1 << 16, ZstdLevel: zstd.SpeedFastest})
	if err != nil {
		return nil
	}
	if generation, err = newGeneration(content); err != nil {
		return nil
	}
	return generation
}

func newGeneration(content []byte) (*Generation, error) {
	// Without entropy coding the result is a sixth larger and is read twice as fast.
	encoding := []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithNoEntropyCompression(true), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithWindowSize(128 << 10)}
	decoding := []zstd.DOption{zstd.WithDecoderMaxMemory(maxDecoded), zstd.WithDecoderConcurrency(0)}
	if content != nil {
		encoding = append(encoding, zstd.WithEncoderDict(content))
		decoding = append(decoding, zstd.WithDecoderDicts(content))
	}
	encoder, err := zstd.NewWriter(nil, encoding...)
	if err != nil {
		return nil, fmt.Errorf("creating an encoder: %w", err)
	}
	decoder, err := zstd.NewReader(nil, decoding...)
	if err != nil {
		return nil, fmt.Errorf("creating a decoder: %w", err)
	}
	return &Generation{encoder: encoder, decoder: decoder}, nil
}
