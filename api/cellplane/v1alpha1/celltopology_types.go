package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CellTopologyName is the name of the only CellTopology.
const CellTopologyName = "default"

// CellTopology lists the cells that hold objects and their weights. It alone determines which cell owns an object.
// There is one, named "default"; its generation is the epoch.
//
// One change runs at a time: cells join (In), cells leave (Out), or weights change (targetWeight). It can be
// reverted at any time by swapping In and Out, or weight and targetWeight. It can end when all objects have moved,
// in phase Moved. A cell may be declared Failed at any time.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=celltopologies,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.metadata.generation`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Moved",type=integer,JSONPath=`.status.change.movedObjects`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.change.totalObjects`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="metadata.name must be default: there is one CellTopology"
// +kubebuilder:validation:XValidation:rule="oldSelf.spec.cells.all(o, o.state == 'In' ? !self.spec.cells.exists(c, c.name == o.name && c.state == 'Normal') : o.state == 'Out' ? self.spec.cells.exists(c, c.name == o.name) : !has(o.targetWeight) || !self.spec.cells.exists(c, c.name == o.name && c.state == 'Normal' && !has(c.targetWeight))) || (has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'Moved')",message="spec.cells: the change under way can end only in status.phase Moved; to give it up, turn it back by swapping In and Out, or weight and targetWeight"
// +kubebuilder:validation:XValidation:rule="oldSelf.spec.cells.all(o, o.state != 'Failed' || !self.spec.cells.exists(c, c.name == o.name && c.state == 'In') || !has(oldSelf.status) || !has(oldSelf.status.cells) || !oldSelf.status.cells.exists(s, s.name == o.name && ((has(s.slots) && s.slots > 0) || (has(s.targetSlots) && s.targetSlots > 0))))",message="spec.cells: a failed cell can return once the hub manager has recorded its failure, in the condition Fenced of its Cell"
// +kubebuilder:validation:XValidation:rule="oldSelf.spec.cells.all(o, o.state != 'Failed' || self.spec.cells.exists(c, c.name == o.name) || !has(oldSelf.status) || !has(oldSelf.status.cells) || (has(oldSelf.status.fencedEpoch) && has(oldSelf.status.observedGeneration) && oldSelf.status.fencedEpoch >= oldSelf.status.observedGeneration && !oldSelf.status.cells.exists(s, s.name == o.name && ((has(s.slots) && s.slots > 0) || (has(s.targetSlots) && s.targetSlots > 0)))))",message="spec.cells: a failed cell can be removed once its share was taken over: see the condition Promoted of its Cell. Its copies are removed with it"
type CellTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec lists the cells.
	// +required
	Spec CellTopologySpec `json:"spec"`

	// Status is the progress of the current change.
	// +optional
	Status CellTopologyStatus `json:"status,omitzero"`
}

// CellTopologyList is a list of CellTopology.
//
// +kubebuilder:object:root=true
type CellTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CellTopology `json:"items"`
}

// CellTopologySpec lists the cells and limits the pace of changes.
//
// +kubebuilder:validation:XValidation:rule="self.cells.exists(c, c.state in ['Normal', 'In'])",fieldPath=".cells",message="cells must hold at least one cell that is Normal or In, or nobody would own the objects"
// +kubebuilder:validation:XValidation:rule="(self.cells.exists(c, c.state == 'In') ? 1 : 0) + (self.cells.exists(c, c.state == 'Out') ? 1 : 0) + (self.cells.exists(c, has(c.targetWeight)) ? 1 : 0) <= 1",fieldPath=".cells",message="cells: one change runs at a time, so use only one of state In, state Out and targetWeight"
// +kubebuilder:validation:XValidation:rule="self.cells.all(c, c.state == 'In' || oldSelf.cells.exists(o, o.name == c.name))",fieldPath=".cells",message="cells: a cell enters in state In"
// +kubebuilder:validation:XValidation:rule="oldSelf.cells.all(o, o.state in ['Out', 'Failed'] || self.cells.exists(c, c.name == o.name))",fieldPath=".cells",message="cells: a cell leaves through state Out or Failed"
// +kubebuilder:validation:XValidation:rule="!oldSelf.cells.exists(o, o.state in ['In', 'Out'] || has(o.targetWeight)) || self.cells.all(c, (!(c.state in ['In', 'Out']) && !has(c.targetWeight)) || oldSelf.cells.exists(o, o.name == c.name && (o.state in ['In', 'Out'] || has(o.targetWeight))))",fieldPath=".cells",message="cells: a change is under way, and no other can start before it has ended"
// +kubebuilder:validation:XValidation:rule="['In', 'Normal', 'Out'].exists(s, oldSelf.cells.all(o, o.state != 'In' || self.cells.exists(c, c.name == o.name && c.state in [s, 'Failed'])))",fieldPath=".cells",message="cells: the cells that are In go on together"
// +kubebuilder:validation:XValidation:rule="['In', 'Out'].exists(s, oldSelf.cells.all(o, o.state != 'Out' || self.cells.exists(c, c.name == o.name && c.state in [s, 'Failed']))) || oldSelf.cells.all(o, o.state != 'Out' || !self.cells.exists(c, c.name == o.name && c.state != 'Failed'))",fieldPath=".cells",message="cells: the cells that are Out go on together"
// +kubebuilder:validation:XValidation:rule="oldSelf.cells.all(o, !has(o.targetWeight) || self.cells.exists(c, c.name == o.name && (c.state == 'Failed' || (has(c.targetWeight) && c.weight == o.weight)))) || oldSelf.cells.all(o, !has(o.targetWeight) || self.cells.exists(c, c.name == o.name && (c.state == 'Failed' || (has(c.targetWeight) && c.weight == o.targetWeight)))) || oldSelf.cells.all(o, !has(o.targetWeight) || self.cells.exists(c, c.name == o.name && (c.state == 'Failed' || !has(c.targetWeight))))",fieldPath=".cells",message="cells: the cells with a targetWeight go on together"
type CellTopologySpec struct {
	// Cells are the cells of the federation.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Cells []TopologyCell `json:"cells"`

	// Migration limits the pace of changes.
	// +optional
	// +kubebuilder:default={}
	Migration MigrationPace `json:"migration,omitzero"`
}

// TopologyCell is a cell of the topology.
//
// +kubebuilder:validation:XValidation:rule="!has(self.targetWeight) || (self.state == 'Normal' && self.targetWeight != self.weight)",fieldPath=".targetWeight",message="targetWeight is for a Normal cell and differs from its weight"
// +kubebuilder:validation:XValidation:rule="self.state == oldSelf.state || (oldSelf.state + self.state) in ['NormalOut', 'NormalFailed', 'InNormal', 'InOut', 'InFailed', 'OutIn', 'OutFailed', 'FailedIn']",fieldPath=".state",message="state goes from In to Normal, from Normal to Out, from Failed to In, between In and Out to turn a change back, and from anywhere to Failed"
// +kubebuilder:validation:XValidation:rule="oldSelf.state == 'Failed' || (has(oldSelf.targetWeight) ? (self.weight == oldSelf.weight ? self.state == 'Failed' || (has(self.targetWeight) && self.targetWeight == oldSelf.targetWeight) : self.weight == oldSelf.targetWeight && (!has(self.targetWeight) || self.targetWeight == oldSelf.weight)) : self.weight == oldSelf.weight)",fieldPath=".weight",message="weight is changed by giving a targetWeight, which stays until it becomes the weight"
// +kubebuilder:validation:XValidation:rule="(has(self.seed) ? self.seed : 0) == (has(oldSelf.seed) ? oldSelf.seed : 0)",fieldPath=".seed",message="seed stays what it was when the cell joined: with another, the cell would own other slots"
type TopologyCell struct {
	// Name of the Cell.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=48
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Weight is the cell's share of the slots, relative to the other cells.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=1
	Weight int32 `json:"weight,omitempty"`

	// TargetWeight is the weight after the current change. It becomes the weight when all objects have moved.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetWeight *int32 `json:"targetWeight,omitempty"`

	// Seed determines, together with the name, which slots the cell owns. `cellplane cells add` chooses a seed that
	// brings all cells close to their weights, and `cellplane cells plan add` shows it. It is fixed while the cell
	// is part of the topology.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Seed int32 `json:"seed,omitempty"`

	// State says whether the cell owns slots before and after the current change.
	// +optional
	// +kubebuilder:validation:Enum=Normal;In;Out;Failed
	// +kubebuilder:default=Normal
	State CellState `json:"state,omitempty"`
}

// CellState says whether a cell owns slots before and after a change.
type CellState string

const (
	// CellStateNormal cells own slots before and after.
	CellStateNormal CellState = "Normal"
	// CellStateIn cells are joining and own slots after.
	CellStateIn CellState = "In"
	// CellStateOut cells are leaving and own slots before.
	CellStateOut CellState = "Out"
	// CellStateFailed cells own nothing.
	CellStateFailed CellState = "Failed"
)

// MigrationPace limits the pace of changes.
type MigrationPace struct {
	// Window is the number of objects that move at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +kubebuilder:default=64
	Window int32 `json:"window,omitempty"`

	// GracePeriod is how long the old copies of moved objects are kept.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:default="12h"
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
}

// CellTopologyStatus is the progress of the current change.
type CellTopologyStatus struct {
	// ObservedGeneration is the epoch that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// FencedEpoch is the lowest epoch that every API server of every cell is known to require.
	// +optional
	FencedEpoch int64 `json:"fencedEpoch,omitempty"`

	// Phase of the change.
	// +optional
	// +kubebuilder:validation:Enum=Stable;Fencing;Promoting;Moving;Moved
	Phase TopologyPhase `json:"phase,omitempty"`

	// Conditions of the topology: Settled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Change is the current change.
	// +optional
	Change *TopologyChange `json:"change,omitempty"`

	// LeftoversSince is when the last change ended that left old copies behind. They are removed after the grace
	// period.
	// +optional
	LeftoversSince *metav1.Time `json:"leftoversSince,omitempty"`

	// Cells lists what each cell holds.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Cells []CellSlots `json:"cells,omitempty"`

	// Epochs are the latest epochs, the newest last. They let watches continue through a change.
	// +optional
	// +listType=map
	// +listMapKey=epoch
	// +kubebuilder:validation:MaxItems=16
	Epochs []TopologyEpoch `json:"epochs,omitempty"`
}

// TopologyEpoch describes how watch positions of the previous epoch continue in an epoch.
type TopologyEpoch struct {
	// Epoch is the generation of the CellTopology.
	// +required
	Epoch int64 `json:"epoch"`

	// From lists the cells that are new in the epoch, with the revision of their stores before anything moved
	// there.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	From map[string]int64 `json:"from,omitempty"`

	// Before lists the cells that are not new in the epoch, if others are, with revisions that their stores had
	// before those in From were read. What is written in a new cell after that is newer than these revisions.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Before map[string]int64 `json:"before,omitempty"`

	// Least lists the cells that left in the epoch, with the last revision of their stores that concerns clients. A
	// client with an earlier position reads on there first.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Least map[string]int64 `json:"least,omitempty"`
}

// TopologyPhase is the phase of a change.
type TopologyPhase string

const (
	// TopologyStable means that no change is under way.
	TopologyStable TopologyPhase = "Stable"
	// TopologyFencing means that the cells are being set to refuse the previous epoch.
	TopologyFencing TopologyPhase = "Fencing"
	// TopologyPromoting means that the backups of a failed cell are being activated.
	TopologyPromoting TopologyPhase = "Promoting"
	// TopologyMoving means that objects move.
	TopologyMoving TopologyPhase = "Moving"
	// TopologyMoved means that all objects have moved and the change can end.
	TopologyMoved TopologyPhase = "Moved"
)

// TopologyChange is the progress of a change.
type TopologyChange struct {
	// Epoch of the change. The other fields are valid in this epoch only.
	// +required
	Epoch int64 `json:"epoch"`

	// StartedAt is when the change began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// MovedObjects is the number of moved objects.
	// +optional
	MovedObjects int64 `json:"movedObjects,omitempty"`

	// TotalObjects is the number of objects to move.
	// +optional
	TotalObjects int64 `json:"totalObjects,omitempty"`

	// MovedSlots is a bitmap of the 16384 slots, lowest bit first. A set bit means that all objects of the slot
	// have moved, so that only the new cell is queried.
	// +optional
	// +kubebuilder:validation:MaxLength=2732
	MovedSlots []byte `json:"movedSlots,omitempty"`
}

// CellSlots is the number of slots of a cell.
type CellSlots struct {
	// Name of the cell.
	// +required
	// +kubebuilder:validation:MaxLength=48
	Name string `json:"name"`

	// Slots that it owns before the change.
	// +optional
	Slots int32 `json:"slots,omitempty"`

	// TargetSlots that it owns after the change.
	// +optional
	TargetSlots int32 `json:"targetSlots,omitempty"`

	// BackupSlots whose backups it keeps after the change.
	// +optional
	BackupSlots int32 `json:"backupSlots,omitempty"`
}
