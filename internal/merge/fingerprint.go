package merge

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FingerprintAnnotation holds the fingerprint of the manifest that a member's object was last written from.
const FingerprintAnnotation = "cellplane.io/fingerprint"

// Fingerprint returns a digest of what a manifest asks for: everything but its status and metadata other than labels
// and annotations. Equal manifests must have equal fingerprints in every version of this program; otherwise an upgrade
// would rewrite every object in every member.
func Fingerprint(manifest *unstructured.Unstructured) string {
	h := hasher{digest: xxhash.New()}
	for _, name := range sortedKeys(manifest.Object) {
		switch name {
		case "status":
		case "metadata":
			h.metadata(manifest)
		default:
			h.text(name)
			h.value(manifest.Object[name])
		}
	}
	return strconv.FormatUint(h.digest.Sum64(), 36)
}

// hasher feeds values to a digest such that different values feed different bytes.
type hasher struct {
	digest  *xxhash.Digest
	scratch [9]byte
}

func (h *hasher) metadata(manifest *unstructured.Unstructured) {
	for _, field := range []string{"labels", "annotations"} {
		entries := metadataEntries(manifest, field)
		h.text(field)
		for _, key := range sortedKeys(entries) {
			if key == FingerprintAnnotation {
				continue
			}
			h.text(key)
			h.value(entries[key])
		}
	}
}

func (h *hasher) value(value any) {
	switch v := value.(type) {
	case nil:
		h.tagged('0', 0)
	case map[string]any:
		h.tagged('{', uint64(len(v)))
		for _, key := range sortedKeys(v) {
			h.text(key)
			h.value(v[key])
		}
	case []any:
		h.tagged('[', uint64(len(v)))
		for _, item := range v {
			h.value(item)
		}
	case string:
		h.text(v)
	case bool:
		if v {
			h.tagged('b', 1)
		} else {
			h.tagged('b', 0)
		}
	case int64:
		h.tagged('i', uint64(v))
	case float64:
		if whole := int64(v); float64(whole) == v {
			h.tagged('i', uint64(whole)) // 1.0 and 1 are the same number, decoders differ
		} else {
			h.tagged('f', math.Float64bits(v))
		}
	case json.Number:
		h.text(v.String())
	default:
		h.text(fmt.Sprint(v))
	}
}

func (h *hasher) text(text string) {
	h.tagged('s', uint64(len(text)))
	_, _ = h.digest.WriteString(text) // a digest never fails
}

func (h *hasher) tagged(tag byte, value uint64) {
	h.scratch[0] = tag
	binary.LittleEndian.PutUint64(h.scratch[1:], value)
	_, _ = h.digest.Write(h.scratch[:]) // a digest never fails
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
