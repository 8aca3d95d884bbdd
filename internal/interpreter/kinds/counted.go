package kinds

import (
	"encoding/json"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// Counted describes workloads whose status is a set of numbers that add up over the members. Most objects in
// a federation are of such a kind and their statuses change all the time, so this is kept free of generic decoding.
type Counted struct {
	// Counters are the numbers, by their names in the status.
	Counters []string
	// Texts are reported too; the last member's value is used.
	Texts []string
}

const (
	maxCounters = 12
	maxTexts    = 4
)

// NewCounted returns a description. It panics on an unknown name, so that errors show at start-up.
func NewCounted(counters []string, texts ...string) Counted {
	var r reported
	for _, name := range counters {
		if r.counter(name) == nil {
			panic("kinds: " + name + " is not a known counter")
		}
	}
	for _, name := range texts {
		if r.text(name) == nil {
			panic("kinds: " + name + " is not a known text")
		}
	}
	if len(counters) > maxCounters || len(texts) > maxTexts {
		panic("kinds: too many counters or texts")
	}
	return Counted{Counters: counters, Texts: texts}
}

// Aggregate adds up the members' numbers.
func (c Counted) Aggregate(template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	generation, _, err := fields.Int(template.Object, "metadata", "generation")
	if err != nil {
		return nil, err
	}
	status, _, err := fields.Map(template.Object, "status")
	if err != nil {
		return nil, err
	}
	var sums [maxCounters]int64
	var texts [maxTexts]string
	observed := 0
	var member reported
	for i := range items {
		member = reported{}
		found, err := member.decode(&items[i])
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if member.ResourceTemplateGeneration == generation && member.Generation == member.ObservedGeneration {
			observed++
		}
		for j, name := range c.Counters {
			sums[j] += *member.counter(name)
		}
		for j, name := range c.Texts {
			if text := *member.text(name); text != "" {
				texts[j] = text
			}
		}
	}
	if observed != len(items) {
		if generation, _, err = fields.Int(status, "observedGeneration"); err != nil {
			return nil, fields.Under("status", err)
		}
	}
	if changed, err := c.differs(status, generation, sums[:], texts[:]); err != nil || !changed {
		return template, err
	}
	out := make(map[string]any, len(status)+len(c.Counters)+len(c.Texts)+1)
	maps.Copy(out, status)
	out["observedGeneration"] = generation
	for j, name := range c.Counters {
		out[name] = sums[j]
	}
	for j, name := range c.Texts {
		if texts[j] != "" {
			out[name] = texts[j]
		}
	}
	root := make(map[string]any, len(template.Object)+1)
	maps.Copy(root, template.Object)
	root["status"] = out
	return fields.Object(root), nil
}

// differs reports whether a status differs from these numbers; an absent number counts as zero.
func (c Counted) differs(status map[string]any, generation int64, sums []int64, texts []string) (bool, error) {
	if n, _, err := fields.Int(status, "observedGeneration"); err != nil || n != generation {
		return true, fields.Under("status", err)
	}
	for j, name := range c.Counters {
		if n, _, err := fields.Int(status, name); err != nil || n != sums[j] {
			return true, fields.Under("status", err)
		}
	}
	for j, name := range c.Texts {
		if text, _, err := fields.String(status, name); err != nil || texts[j] != "" && text != texts[j] {
			return true, fields.Under("status", err)
		}
	}
	return false, nil
}

// Reflect reports the numbers and what is needed to tell which edit of the template they belong to.
func (c Counted) Reflect(obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	status, found, err := fields.Map(obj.Object, "status")
	if err != nil || !found {
		return nil, err
	}
	own, template, err := Generations(obj)
	if err != nil {
		return nil, err
	}
	observed, _, err := fields.Int(status, "observedGeneration")
	if err != nil {
		return nil, fields.Under("status", err)
	}
	out := make([]byte, 1, 256)
	out[0] = '{'
	out = appendInt(out, "generation", own)
	out = appendInt(out, "resourceTemplateGeneration", template)
	out = appendInt(out, "observedGeneration", observed)
	for _, name := range c.Counters {
		n, _, err := fields.Int(status, name)
		if err != nil {
			return nil, fields.Under("status", err)
		}
		out = appendInt(out, name, n)
	}
	for _, name := range c.Texts {
		text, _, err := fields.String(status, name)
		if err != nil {
			return nil, fields.Under("status", err)
		}
		if out, err = appendText(out, name, text); err != nil {
			return nil, err
		}
	}
	return &runtime.RawExtension{Raw: append(out, '}')}, nil
}

func appendInt(out []byte, name string, n int64) []byte {
	if n == 0 {
		return out
	}
	return strconv.AppendInt(appendName(out, name), n, 10)
}

func appendText(out []byte, name, text string) ([]byte, error) {
	if text == "" {
		return out, nil
	}
	encoded, err := json.Marshal(text)
	return append(appendName(out, name), encoded...), err
}

func appendName(out []byte, name string) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	out = append(out, '"')
	out = append(out, name...)
	return append(out, '"', ':')
}
