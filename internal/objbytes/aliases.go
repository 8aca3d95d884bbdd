package objbytes

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// maxExpanded is how large a YAML document may be with its aliases replaced by what they stand for. API servers accept bodies of 3 MiB.
const maxExpanded = 8 << 20

// ErrAliases reports a YAML document that aliases make very large. Parsers bound how many values an alias stands for, and not their size: a few
// megabytes with many aliases of one long text become terabytes of JSON.
var ErrAliases = fmt.Errorf("%w: with its aliases replaced the YAML document would be larger than %d MiB", ErrMalformed, maxExpanded>>20)

// CheckAliases returns an error if a YAML document must not be converted to JSON, because its aliases would make it too large.
func CheckAliases(document []byte) error {
	if bytes.IndexByte(document, '&') < 0 || bytes.IndexByte(document, '*') < 0 || json.Valid(document) {
		return nil // it has none
	}
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if (expansion{}).of(&root) > maxExpanded {
		return ErrAliases
	}
	return nil
}

// expansion holds the sizes of the values that aliases stand for.
type expansion map[*yaml.Node]int

// of returns the size of a value with its aliases replaced, or more than maxExpanded. A value that contains itself is endless.
func (e expansion) of(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode {
		if n.Alias == nil {
			return 1
		}
		return e.of(n.Alias)
	}
	if size, known := e[n]; known {
		return size
	}
	if n.Anchor != "" {
		e[n] = maxExpanded + 1 // until it is known
	}
	size := len(n.Value) + 1
	for _, child := range n.Content {
		if size += e.of(child); size > maxExpanded {
			break
		}
	}
	if n.Anchor != "" {
		e[n] = size
	}
	return size
}
