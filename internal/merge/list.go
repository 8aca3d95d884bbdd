package merge

// list merges lists as their kind requires.
func (w *walk) list(live, desired []any, who owners, s *shape) (any, bool) {
	list := &listShape{}
	switch {
	case s != nil && s.list != nil:
		list = s.list
	case s == nil:
		if revealed := who.revealed(); revealed != nil {
			list = revealed
		}
	}
	switch list.kind {
	case setList, keyedList:
		if merged, changed, ok := w.items(live, desired, who, list); ok {
			return merged, changed
		}
	case additiveList:
		return w.additive(live, desired, who, list, s)
	case atomicList:
	}
	return w.atomic(live, desired, who, s)
}

// atomic merges a list that is one value: the federation's, unless the member's has the same and more.
func (w *walk) atomic(live, desired []any, who owners, s *shape) (any, bool) {
	if w.removing && who.oursAlone() {
		return replace(live, desired, s)
	}
	if desired == nil || coversList(live, desired, s) {
		return live, false
	}
	return desired, true
}

// additive merges a list of independent entries that can only be owned as a whole. Entries beyond ours are kept unless
// they must be our own former ones.
func (w *walk) additive(live, desired []any, who owners, list *listShape, s *shape) (any, bool) {
	if w.removing && who.oursAlone() {
		return replace(live, desired, s)
	}
	if coversList(live, desired, s) {
		return live, false
	}
	merged := append([]any(nil), desired...)
	for _, have := range live {
		if !coversAny(have, desired, list.items) {
			merged = append(merged, have)
		}
	}
	return merged, true
}

// coversAny reports whether a live entry is the counterpart of a desired one.
func coversAny(have any, desired []any, s *shape) bool {
	for _, want := range desired {
		if covers(have, want, s) {
			return true
		}
	}
	return false
}

// items merges lists whose items have an identity. Desired items keep their order, and items that only the member has
// stay behind the item they followed. Ok is false if an item has no identity.
func (w *walk) items(live, desired []any, who owners, list *listShape) (merged []any, changed, ok bool) {
	liveIDs, ok := list.identifyAll(live)
	if !ok {
		return nil, false, false
	}
	desiredIDs, ok := list.identifyAll(desired)
	if !ok {
		return nil, false, false
	}
	itemOwners := who.items(list.identify)
	if itemOwners == nil && who.leafOfOurs() {
		// To the member's API server the list is one value, and it is ours with every item.
		itemOwners = map[string]owners{}
		for _, id := range liveIDs {
			itemOwners[id] = who
		}
	}
	pairs := pairUp(live, liveIDs, desiredIDs)

	// followers[i] are the items only the member has that go before the i-th desired one.
	followers := make([][]any, len(desired)+1)
	place := 0
	for i, id := range liveIDs {
		if pair := pairs[id]; pair.wanted > 0 {
			place = pair.last + 1
			continue
		}
		remains, itemChanged := w.subtractItem(live[i], itemOwners[id], list)
		changed = changed || itemChanged
		if remains != nil {
			followers[place] = append(followers[place], remains)
		}
	}

	merged = make([]any, 0, len(live)+len(desired))
	for i, id := range desiredIDs {
		item, itemChanged := desired[i], true
		// The same key may occur twice, as with ports. Then items are matched by their order, if their number is the
		// same.
		if pair := pairs[id]; len(pair.live) == pair.wanted {
			item, itemChanged = w.value(pair.live[pair.taken], desired[i], itemOwners[id], list.items)
			pair.taken++
		}
		changed = changed || itemChanged
		merged = append(append(merged, followers[i]...), item)
	}
	merged = append(merged, followers[len(desired)]...)
	if !changed && list.inOrder(merged, liveIDs) {
		return live, false, true
	}
	return merged, true, true
}

// pair has the items of one key in two lists.
type pair struct {
	live   []any
	taken  int // how many of live have been merged
	wanted int // how often the key is desired
	last   int // the place of its last desired item
}

func pairUp(live []any, liveIDs, desiredIDs []string) map[string]*pair {
	pairs := make(map[string]*pair, len(liveIDs)+len(desiredIDs))
	of := func(id string) *pair {
		if pairs[id] == nil {
			pairs[id] = &pair{}
		}
		return pairs[id]
	}
	for i, id := range liveIDs {
		of(id).live = append(of(id).live, live[i])
	}
	for i, id := range desiredIDs {
		of(id).wanted++
		of(id).last = i
	}
	return pairs
}

// subtractItem removes what is ours from a list item that the manifest does not have. An item that we added is removed
// as a whole, with the changes of others inside it; an item that another added as well loses only what is ours alone.
func (w *walk) subtractItem(item any, who owners, list *listShape) (any, bool) {
	if !w.removing || !who.oursBelow() {
		return item, false
	}
	if whole(who.ours) && !whole(who.others) {
		return nil, true
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return item, false
	}
	return w.fields(fields, nil, who, list.items)
}

func (l *listShape) identifyAll(items []any) ([]string, bool) {
	ids := make([]string, len(items))
	for i, item := range items {
		id, ok := l.identify(item)
		if !ok {
			return nil, false
		}
		ids[i] = id
	}
	return ids, true
}

// inOrder reports whether the items have the given identities, in their order.
func (l *listShape) inOrder(items []any, ids []string) bool {
	if len(items) != len(ids) {
		return false
	}
	for i, item := range items {
		if id, _ := l.identify(item); id != ids[i] {
			return false
		}
	}
	return true
}
