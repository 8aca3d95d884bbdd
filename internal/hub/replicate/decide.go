package replicate

// State is the input of a decision about one object in one cell.
type State struct {
	Rule *Rule
	Name string
	// Want is the source of the copy that the cell should have, nil if it should have none.
	Want *Source
	// Have is the object in the cell, nil if there is none.
	Have *Copy
	// Namespace is whether objects can be created in the namespace of this one.
	Namespace NamespaceState
	// Settled and StatusConverged mean that the cell stored something else than was written, because its defaults
	// differ from the hub's. Another write would change nothing.
	Converged, StatusConverged bool
}

// NamespaceState is whether objects can be created in a namespace.
type NamespaceState int

const (
	// NamespaceActive namespaces accept objects. Cluster-scoped objects have this state too.
	NamespaceActive NamespaceState = iota
	// NamespaceAbsent namespaces do not exist or are terminating.
	NamespaceAbsent
)

// Action is the next step for an object in a cell.
type Action string

const (
	// Nothing means that the copy is up to date, or that somebody else has to act.
	Nothing Action = "nothing"
	// Create creates the copy.
	Create Action = "create"
	// Update overwrites labels, annotations and content of the copy.
	Update Action = "update"
	// UpdateStatus overwrites the status of the copy.
	UpdateStatus Action = "update status"
	// Delete removes the copy. A namespace is put into its terminating phase.
	Delete Action = "delete"
	// Retire deletes a namespace if it is empty.
	Retire Action = "retire"
	// Finalize removes a terminating namespace if it is empty.
	Finalize Action = "finalize"
	// Wait means that the object waits for another one, or for its finalizers in the cell.
	Wait Action = "wait"
	// Conflict means that an object which is not a copy has the same name.
	Conflict Action = "conflict"
	// Foreign means that the cell has an object which is not a copy, and blocks none.
	Foreign Action = "foreign"
)

// Decide returns the next step. Each step leads to another state, until there is nothing left to do.
func Decide(s State) Action {
	switch {
	case s.Want == nil && s.Have == nil, s.Rule.ignores(s.Name):
		return Nothing
	case s.Have == nil:
		return s.make()
	case s.Have.source() == "" && !s.Rule.shares(s.Name):
		if s.Want == nil || s.Want.deleting() {
			return Foreign
		}
		return Conflict
	case s.Rule.isNamespace():
		return s.keepNamespace()
	default:
		return s.keep()
	}
}

// make decides about an object that the cell should have and lacks.
func (s State) make() Action {
	switch {
	case s.Want.deleting():
		return Nothing
	case s.Namespace != NamespaceActive:
		return Wait
	default:
		return Create
	}
}

// keep decides about an existing copy.
func (s State) keep() Action {
	switch {
	case s.unwanted() && s.Rule.shares(s.Name):
		return Nothing
	case s.Have.deleting() && (s.unwanted() || s.outdated()):
		return Nothing // it is gone when its finalizers are
	case s.unwanted() || s.outdated():
		return Delete
	case s.Have.deleting():
		return Wait // it is recreated once it is gone
	default:
		return s.refresh()
	}
}

// keepNamespace decides about an existing copy of a namespace. The copy of a former namespace is not deleted: its content
// may belong to the new one.
func (s State) keepNamespace() Action {
	switch {
	case s.Want == nil && s.Rule.shares(s.Name):
		return Nothing
	case s.Want == nil && s.Have.deleting():
		return Finalize
	case s.Want == nil:
		return Retire
	case s.Want.deleting() && s.Have.deleting():
		return Nothing // the federation's namespace controller is emptying it
	case s.Want.deleting():
		return Delete
	case s.Have.deleting():
		return Finalize // it is recreated
	default:
		return s.refresh()
	}
}

// refresh decides about a copy that stays.
func (s State) refresh() Action {
	switch {
	case s.Have.digest != s.Want.digest && !s.Converged:
		return Update
	case s.Rule.Part == ContentAndStatus && s.Have.statusDigest != s.Want.statusDigest && !s.StatusConverged:
		return UpdateStatus
	default:
		return Nothing
	}
}

// unwanted reports whether the copy has to be deleted.
func (s State) unwanted() bool {
	return s.Want == nil || s.Want.deleting() && !s.Rule.Lingers
}

// outdated reports whether the copy is that of a former object of the same name.
func (s State) outdated() bool {
	return !s.Rule.InPlace && !s.Rule.shares(s.Name) && s.Have.source() != s.Want.UID
}
