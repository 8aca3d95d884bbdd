package schedule

import (
	"fmt"
	"strings"
)

// cover counts the groups of a set of clusters, by field.
type cover struct {
	fields []field
	groups []map[string]bool
}

func newCover(fields []field) *cover {
	c := &cover{fields: fields, groups: make([]map[string]bool, len(fields))}
	for i := range c.groups {
		c.groups[i] = map[string]bool{}
	}
	return c
}

// add adds a cluster and reports whether it belongs to a group that was not covered before.
func (c *cover) add(at *candidate) (isNew bool) {
	for i := range c.fields {
		for _, key := range c.fields[i].keys(at.member) {
			if !c.groups[i][key] {
				c.groups[i][key], isNew = true, true
			}
		}
	}
	return isNew
}

func (c *cover) enough() bool {
	for i := range c.fields {
		if len(c.groups[i]) < c.fields[i].least {
			return false
		}
	}
	return true
}

func (c *cover) lacking() string {
	var parts []string
	for i := range c.fields {
		if len(c.groups[i]) < c.fields[i].least {
			parts = append(parts, fmt.Sprintf("%d of %d %s", len(c.groups[i]), c.fields[i].least, c.fields[i].what))
		}
	}
	return strings.Join(parts, ", ")
}
