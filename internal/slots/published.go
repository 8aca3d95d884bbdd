package slots

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// publishedPrefix begins the keys under which the hub manager publishes Owners.
const publishedPrefix = "epoch-"

// PublishedKey is the key under which the owners of an epoch are published.
func PublishedKey(epoch int64) string { return publishedPrefix + strconv.FormatInt(epoch, 10) }

// PublishedEpochs returns the epochs whose owners are published, in ascending order.
func PublishedEpochs(data map[string][]byte) ([]int64, error) {
	epochs := make([]int64, 0, len(data))
	for key := range data {
		text, found := strings.CutPrefix(key, publishedPrefix)
		epoch, err := strconv.ParseInt(text, 10, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("reading the owners of slots: %q is not the key of an epoch", key)
		}
		epochs = append(epochs, epoch)
	}
	slices.Sort(epochs)
	return epochs, nil
}

// PublishedOwners returns the owners of an epoch; nil if they are not published.
func PublishedOwners(data map[string][]byte, epoch int64) (*Owners, error) {
	encoded, found := data[PublishedKey(epoch)]
	if !found {
		return nil, nil
	}
	owners, err := DecodeOwners(encoded)
	if err == nil && owners.Epoch() != epoch {
		err = fmt.Errorf("decoding the owners of slots: those of epoch %d are published for epoch %d", owners.Epoch(), epoch)
	}
	if err != nil {
		return nil, err
	}
	return owners, nil
}
