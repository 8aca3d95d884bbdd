package engine

import (
	"github.com/cellplane/cellplane/internal/engine/binding"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/quota"
	"github.com/cellplane/cellplane/internal/engine/status"
)

// notifier passes what a stage finds out to the stages that report it. Spec flows down through the cache of the cell, to
// which stages subscribe. What flows up is in memory only: a stage calls a method here, and the notifier calls every
// stage that depends on it. Its receivers are set once all stages exist, before any of them runs.
type notifier struct {
	cell          *cell.Cell
	binding       *binding.Controller
	workStatus    *status.Works
	bindingStatus *status.Bindings
	quota         *quota.Controller
}

// WorkChanged is called by execution when the report about a Work has changed: it was applied, it failed, or its objects
// in the member have changed.
func (n *notifier) WorkChanged(key cell.Key) {
	n.workStatus.Changed(key)
	if work := n.cell.Works.Get(key); work != nil && work.Binding.Name != "" {
		n.bindingStatus.Changed(work.Binding)
		n.binding.Progressed(work.Binding)
	} else {
		n.quota.Changed(work) // Works of quotas have no binding
	}
}

// BindingChanged is called by the scheduler when it has decided about a binding, and by the binding controller when it
// starts or stops to fail to write the Works of a binding.
func (n *notifier) BindingChanged(key cell.Key) { n.bindingStatus.Changed(key) }
