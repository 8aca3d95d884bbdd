package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// Plugins are the enabled filters and scorers. Nil enables all.
type Plugins struct {
	disabled  []string
	filtering []filter
}

// notOptional are filters that cannot be disabled.
var notOptional = []string{"ClusterRemoval"}

// PluginNames returns the names that ParsePlugins accepts, sorted.
func PluginNames() []string {
	var all []string
	for _, f := range defaultFilters {
		if !slices.Contains(notOptional, f.Name()) {
			all = append(all, f.Name())
		}
	}
	for _, s := range []scorer{locality{}, sizeScorer{}, freeScorer{}, priceScorer{}} {
		all = append(all, s.Name())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ParsePlugins parses a list like "*,-ClusterEviction": a name enables a plugin, a name with a minus disables it,
// and a star stands for all that are not named. An empty list enables all. Unknown names are an error.
func ParsePlugins(list []string) (*Plugins, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // nil means all
	}
	known := PluginNames()
	enabled, disabled, all := []string{}, []string{}, false
	for _, word := range list {
		name, without := strings.CutPrefix(strings.TrimSpace(word), "-")
		switch {
		case name == "*" && !without:
			all = true
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("unknown plugin %q; known plugins: %s", word, strings.Join(known, ", "))
		case without:
			disabled = append(disabled, name)
		default:
			enabled = append(enabled, name)
		}
	}
	p := &Plugins{}
	for _, name := range known {
		if slices.Contains(disabled, name) || !all && !slices.Contains(enabled, name) {
			p.disabled = append(p.disabled, name)
		}
	}
	if len(p.disabled) == 0 {
		return nil, nil //nolint:nilnil // nil means all
	}
	for _, f := range defaultFilters {
		if !slices.Contains(p.disabled, f.Name()) {
			p.filtering = append(p.filtering, f)
		}
	}
	return p, nil
}

func (p *Plugins) filters() []filter {
	if p == nil {
		return defaultFilters
	}
	return p.filtering
}

func (p *Plugins) scorers(wanted []scorer) []scorer {
	if p == nil {
		return wanted
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(s scorer) bool { return slices.Contains(p.disabled, s.Name()) })
}
