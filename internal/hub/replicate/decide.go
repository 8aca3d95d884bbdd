package replicate

// Situation is all that a decision about one object in one cell depends on.
type Situation struct {
	Rule *Rule
	Name string
	// Want is the source of the copy that the cell is to have, nil if there is none.
	Want *Source
	// Have is the object in the cell, nil if there is none.
	Have *Copy
	// Namespace tells whether the cell takes new objects in the namespace of this one.
	Namespace NamespaceState
	// Settled and StatusSettled tell that the cell was given exactly what is wanted and made of it what it has, as it
	// fills in other defaults than the hub. Writing again would lead to the same.
	Settled, StatusSettled bool
}

// NamespaceState tells whether a namespace takes new objects.
type NamespaceState int

const (
	// NamespaceActive namespaces take objects. It is also the state of what needs no namespace.
	NamespaceActive NamespaceState = iota
	// NamespaceAbsent namespaces are not there, or on their way out.
	NamespaceAbsent
)

// Action is what is to be done about an object in a cell.
type Action string

const (
	// Nothing means that all is well, or that it is somebody else's turn.
	Nothing Action = "nothing"
	// Create makes the copy.
	Create Action = "create"
	// Update overwrites labels, annotations and content of the copy.
	Update Action = "update"
	// UpdateStatus overwrites the status of the copy.
	UpdateStatus Action = "update status"
	// Delete removes the copy. A namespace is put into its terminating phase.
	Delete Action = "delete"
	// Retire deletes a namespace if it is empty.
	Retire Action = "retire"
	// Finalize lets a terminating namespace go if it is empty.
	Finalize Action = "finalize"
	// Wait means that the object has to wait for another, or for somebody in the cell to let it go.
	Wait Action = "wait"
	// Conflict means that something which is not a copy is in the way.
	Conflict Action = "conflict"
	// Foreign means that there is something which is not a copy, and in nobody's way.
	Foreign Action = "foreign"
)

// Decide names the one thing to do next. Doing it leads to another situation, and so on until there is nothing to do.
func Decide(s Situation) Action {
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

// make is about an object that the cell should have and has not.
func (s Situation) make() Action {
	switch {
	case s.Want.deleting():
		return Nothing
	case s.Namespace != NamespaceActive:
		return Wait
	default:
		return Create
	}
}

// keep is about a copy that is there.
func (s Situation) keep() Action {
	switch {
	case s.unwanted() && s.Rule.shares(s.Name):
		return Nothing
	case s.Have.deleting() && (s.unwanted() || s.outdated()):
		return Nothing // it goes when whoever holds it lets go
	case s.unwanted() || s.outdated():
		return Delete
	case s.Have.deleting():
		return Wait // and is made again once it is gone
	default:
		return s.refresh()
	}
}

// keepNamespace is about a copy of a namespace. It is not deleted for being that of a former one: what is in it may
// have come after the new one.
func (s Situation) keepNamespace() Action {
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
		return Finalize // and is made again
	default:
		return s.refresh()
	}
}

// refresh is about a copy that is to stay.
func (s Situation) refresh() Action {
	switch {
	case s.Have.digest != s.Want.digest && !s.Settled:
		return Update
	case s.Rule.Part == ContentAndStatus && s.Have.statusDigest != s.Want.statusDigest && !s.StatusSettled:
		return UpdateStatus
	default:
		return Nothing
	}
}

// unwanted reports whether the cell is to lose its copy.
func (s Situation) unwanted() bool {
	return s.Want == nil || s.Want.deleting() && !s.Rule.Lingers
}

// outdated reports whether the copy is that of a former object of the same name.
func (s Situation) outdated() bool {
	return !s.Rule.InPlace && !s.Rule.shares(s.Name) && s.Have.source() != s.Want.UID
}
