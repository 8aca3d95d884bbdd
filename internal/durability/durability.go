// Package durability is what gateways and backups agree on about writes that are acknowledged only when a backup cell
// has them.
//
// A backup cell holds, for each cell that it backs up, a Lease with the revision of that cell's store up to which its
// copies are complete. It is written in the transaction of the copies. Gateways watch these Leases. A gateway that
// needs copies at once changes the mark, a ConfigMap in the cell that was written to; backups see it in their watch.
// All of them are in a namespace that users do not reach in a cell: the gateway routes it to the hub.
package durability

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/cellplane/cellplane/api/names"
)

// Mode is what the annotation names.DurabilityAnnotation asks for. Higher ones ask for more.
type Mode int

// The modes.
const (
	// None acknowledges a write when the cell has stored it.
	None Mode = iota
	// Preferred waits for the backup cell, and acknowledges the write with a warning if that takes too long.
	Preferred
	// Replicated acknowledges a write only when the backup cell has it.
	Replicated
)

// Parse reads the value of the annotation; "" asks for nothing. Admission refuses other values. One that was stored
// before it did so counts as Replicated: whoever wrote it wanted durability.
func Parse(value string) Mode {
	switch value {
	case "":
		return None
	case names.DurabilityReplicatedPreferred:
		return Preferred
	default:
		return Replicated
	}
}

const (
	// Namespace holds the Leases and the mark.
	Namespace = names.SystemNamespace
	// MarkName is the name of the mark.
	MarkName = "cellplane-durability-mark"
	// ReceivedLabel is on the Leases. Its value is the name of the cell that is backed up.
	ReceivedLabel = "cellplane.io/received-from"

	revisionAnnotation = "cellplane.io/received-revision"
	epochAnnotation    = "cellplane.io/received-epoch"
	inUseAnnotation    = "cellplane.io/durability-in-use"
)

// ReceivedName is the name of the Lease with what a backup cell has received from a cell.
func ReceivedName(cell string) string { return "cellplane-received-" + cell }

// Received is what a backup cell has received from a cell.
type Received struct {
	// Source is the name of the cell.
	Source string
	// Revision of the cell's store up to which everything is copied, for the slots that the topology of the Epoch
	// assigns to the backup cell.
	Revision, Epoch int64
	// InUse is set if an object of the cell may have the annotation.
	InUse bool
	// Time at which this was written.
	Time time.Time
}

type lease struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type spec struct {
	HolderIdentity string `json:"holderIdentity"`
	RenewTime      string `json:"renewTime"`
}

// Encode returns the Lease as it is stored.
func (r Received) Encode() ([]byte, error) {
	name := ReceivedName(r.Source)
	return json.Marshal(lease{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
		Metadata: metadata{
			Name: name, Namespace: Namespace, UID: uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)).String(),
			Labels: map[string]string{ReceivedLabel: r.Source},
			Annotations: map[string]string{
				revisionAnnotation: strconv.FormatInt(r.Revision, 10), epochAnnotation: strconv.FormatInt(r.Epoch, 10), inUseAnnotation: strconv.FormatBool(r.InUse),
			},
		},
		Spec: spec{HolderIdentity: r.Source, RenewTime: r.Time.UTC().Format("2006-01-02T15:04:05.000000Z07:00")},
	})
}

// Decode reads a Lease in JSON.
func Decode(data []byte) (Received, error) {
	var l lease
	if err := json.Unmarshal(data, &l); err != nil {
		return Received{}, fmt.Errorf("reading what a backup cell has received: %w", err)
	}
	r := Received{Source: l.Metadata.Labels[ReceivedLabel], InUse: l.Metadata.Annotations[inUseAnnotation] == "true"}
	var err error
	if r.Revision, err = strconv.ParseInt(l.Metadata.Annotations[revisionAnnotation], 10, 64); err == nil {
		if r.Epoch, err = strconv.ParseInt(l.Metadata.Annotations[epochAnnotation], 10, 64); err == nil {
			r.Time, err = time.Parse(time.RFC3339, l.Spec.RenewTime)
		}
	}
	if err == nil && l.Metadata.Name != ReceivedName(r.Source) {
		err = fmt.Errorf("it is called %q, and its label names %q", l.Metadata.Name, r.Source)
	}
	if err != nil {
		return Received{}, fmt.Errorf("reading what a backup cell has received: %w", err)
	}
	return r, nil
}
