package merge

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// formerManagers are the field managers of the control plane that members are taken over from. What they own counts as
// ours.
var formerManagers = map[string]bool{
	"karmada-controller-manager": true,
	"karmada-agent":              true,
}

// owners says who owns a field and what is below it. It reads the managed fields in place: a tree of maps whose keys
// are "f:<field>", "k:<keys of a list item>", "v:<value of a set>" and "." for the field itself.
type owners struct {
	ours   []map[string]any
	others []map[string]any
	// weAppear is whether the object has managed fields of ours at all.
	weAppear bool
}

// ownersOf reads the managed fields of a live object. Fields we wrote with another apiVersion are left out: their\n// paths may mean something else in this one, and it is safer to keep a field than to remove one.
func ownersOf(live *unstructured.Unstructured, apiVersion string) owners {
	metadata, _ := live.Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	var result owners
	for _, item := range entries {
		entry, _ := item.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		if len(fields) == 0 {
			continue
		}
		manager, _ := entry["manager"].(string)
		if manager != FieldManager && !formerManagers[manager] {
			result.others = append(result.others, fields)
			continue
		}
		if entry["apiVersion"] == apiVersion {
			result.ours = append(result.ours, fields)
			result.weAppear = true
		}
	}
	return result
}

// field returns the owners of a field and what is below it.
func (o owners) field(name string) owners {
	if len(o.ours) == 0 && len(o.others) == 0 {
		return owners{weAppear: o.weAppear}
	}
	return o.child("f:" + name)
}

func (o owners) child(key string) owners {
	return owners{ours: below(o.ours, key), others: below(o.others, key), weAppear: o.weAppear}
}

func below(trees []map[string]any, key string) []map[string]any {
	var found []map[string]any
	for _, tree := range trees {
		if subtree, ok := tree[key].(map[string]any); ok {
			found = append(found, subtree)
		}
	}
	return found
}

// oursAlone reports whether we own the field as a whole and no other manager owns it or anything below it.
func (o owners) oursAlone() bool { return whole(o.ours) && len(o.others) == 0 }

// oursBelow reports whether we own the field or anything below it.
func (o owners) oursBelow() bool { return len(o.ours) > 0 }

// leafOfOurs reports whether we own the field as one value, with nothing recorded below it.
func (o owners) leafOfOurs() bool {
	for _, tree := range o.ours {
		if len(tree) > 0 {
			return false
		}
	}
	return len(o.ours) > 0
}

// whole reports whether a tree includes the field itself, not only what is below it.
func whole(trees []map[string]any) bool {
	for _, tree := range trees {
		if _, self := tree["."]; self || len(tree) == 0 {
			return true
		}
	}
	return false
}

// items returns the owners of the items of a list, by identity. Nil means that the list is not owned item by item.
func (o owners) items(identify func(item any) (string, bool)) map[string]owners {
	var items map[string]owners
	each := func(trees []map[string]any, add func(*owners, map[string]any)) {
		for _, tree := range trees {
			for key, value := range tree {
				item, ok := listItem(key)
				if !ok {
					continue
				}
				id, ok := identify(item)
				subtree, isTree := value.(map[string]any)
				if !ok || !isTree {
					continue
				}
				if items == nil {
					items = map[string]owners{}
				}
				entry := items[id]
				add(&entry, subtree)
				items[id] = entry
			}
		}
	}
	each(o.ours, func(entry *owners, tree map[string]any) { entry.ours = append(entry.ours, tree) })
	each(o.others, func(entry *owners, tree map[string]any) { entry.others = append(entry.others, tree) })
	return items
}

// listItem decodes the key of a list item into its key fields or its value.
func listItem(key string) (any, bool) {
	if !strings.HasPrefix(key, "k:") && !strings.HasPrefix(key, "v:") {
		return nil, false
	}
	var item any
	if err := json.Unmarshal([]byte(key[2:]), &item); err != nil {
		return nil, false
	}
	return item, true
}

// revealed returns the shape of a list as far as managed fields show it: a manager that owns single items knows their key.
// Lists of unknown kinds are merged by it.
func (o owners) revealed() *listShape {
	for _, trees := range [][]map[string]any{o.ours, o.others} {
		for _, tree := range trees {
			for key := range tree {
				item, ok := listItem(key)
				if !ok {
					continue
				}
				keys, isKeyed := item.(map[string]any)
				if !isKeyed {
					return &listShape{kind: setList}
				}
				shape := &listShape{kind: keyedList}
				for name := range keys {
					shape.keys = append(shape.keys, listKey{name: name})
				}
				return shape
			}
		}
	}
	return nil
}
