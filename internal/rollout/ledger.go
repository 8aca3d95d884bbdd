package rollout

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Ledger is the part of the planner's state that must be stored, by cluster. It is one object, so that two engines cannot plan at the same
// time: the store refuses the second by the version of the object.
type Ledger map[string]Entry

// ledgerVersion is the version of the encoding.
const ledgerVersion = 1

// encodedLedger is the stored form. Clusters share few revisions, so entries name them by number.
type encodedLedger struct {
	Version   int                `json:"v"`
	Revisions []string           `json:"r,omitempty"`
	Clusters  map[string][]int64 `json:"c,omitempty"`
}

// fixedFields is how many numbers an entry has before its revisions.
const fixedFields = 11

// Encode returns the ledger as text for an annotation.
func (l Ledger) Encode() (string, error) {
	encoded := encodedLedger{Version: ledgerVersion, Clusters: make(map[string][]int64, len(l))}
	number := map[string]int64{}
	of := func(revision string) int64 {
		n, known := number[revision]
		if !known {
			n = int64(len(encoded.Revisions))
			number[revision] = n
			encoded.Revisions = append(encoded.Revisions, revision)
		}
		return n
	}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		entry := l[name]
		if err := entry.validate(); err != nil {
			return "", fmt.Errorf("encoding the ledger: cluster %s: %w", name, err)
		}
		c, paused := &entry.Command, int64(0)
		if c.Paused {
			paused = 1
		}
		fields := []int64{
			entry.Seq, entry.Seen, int64(c.Replicas), int64(c.Surge), int64(c.Unavailable), int64(c.Partition), paused,
			int64(entry.Loosened.Pods), int64(entry.Loosened.Available), int64(entry.Loosened.Updated), of(c.Revision),
		}
		for _, revision := range entry.Revisions {
			fields = append(fields, of(revision))
		}
		encoded.Clusters[name] = fields
	}
	text, err := json.Marshal(&encoded)
	return string(text), err
}

// DecodeLedger reads what [Ledger.Encode] has written. Empty text is an empty ledger.
func DecodeLedger(text string) (Ledger, error) {
	if text == "" {
		return Ledger{}, nil
	}
	var encoded encodedLedger
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&encoded); err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	if decoder.More() {
		return nil, fmt.Errorf("reading the ledger: there is more after its end")
	}
	if encoded.Version != ledgerVersion {
		return nil, fmt.Errorf("reading the ledger: its version is %d, and this program knows %d", encoded.Version, ledgerVersion)
	}
	ledger := make(Ledger, len(encoded.Clusters))
	for name, fields := range encoded.Clusters {
		entry, err := decodeEntry(fields, encoded.Revisions)
		if err != nil {
			return nil, fmt.Errorf("reading the ledger: cluster %s: %w", name, err)
		}
		ledger[name] = entry
	}
	return ledger, nil
}

func decodeEntry(fields []int64, revisions []string) (Entry, error) {
	if len(fields) <= fixedFields {
		return Entry{}, fmt.Errorf("it has %d numbers and needs more than %d", len(fields), fixedFields)
	}
	for _, n := range fields[2:fixedFields] {
		if n < 0 || n > maxReplicas {
			return Entry{}, fmt.Errorf("the number %d is out of range", n)
		}
	}
	named := make([]string, 0, len(fields)-fixedFields+1)
	for _, n := range fields[fixedFields-1:] {
		if n < 0 || n >= int64(len(revisions)) {
			return Entry{}, fmt.Errorf("revision number %d does not exist", n)
		}
		named = append(named, revisions[n])
	}
	if fields[6] > 1 {
		return Entry{}, fmt.Errorf("paused is %d", fields[6])
	}
	entry := Entry{
		Seq: fields[0], Seen: fields[1],
		Command: Command{
			Replicas: int(fields[2]), Surge: int(fields[3]), Unavailable: int(fields[4]), Partition: int(fields[5]), Paused: fields[6] == 1,
			Revision: named[0],
		},
		Loosened:  Envelope{Pods: int(fields[7]), Available: int(fields[8]), Updated: int(fields[9])},
		Revisions: named[1:],
	}
	return entry, entry.validate()
}

// maxReplicas is the most replicas that the APIs allow.
const maxReplicas = 1<<31 - 1

// validate refuses an entry that no plan can have made.
func (e *Entry) validate() error {
	c := &e.Command
	for _, n := range []int{c.Replicas, c.Surge, c.Unavailable, c.Partition, e.Loosened.Pods, e.Loosened.Available, e.Loosened.Updated} {
		if n < 0 || n > maxReplicas {
			return fmt.Errorf("the number %d is out of range", n)
		}
	}
	switch {
	case e.Seq <= 0:
		return fmt.Errorf("its command has the number %d", e.Seq)
	case e.Seen < 0:
		return fmt.Errorf("the version %d is negative", e.Seen)
	case !slices.Contains(e.Revisions, c.Revision):
		return fmt.Errorf("its revision %q is not among those that its pods may have", c.Revision)
	}
	return nil
}

// Adopt returns the entry of a cluster that has the workload already: from before there was a ledger, or by a command that is missing
// from a ledger restored from a backup. The command is what the object in the member says, and previous the revision of pods that do not
// have the command's; empty if they all do. Nothing else may be writing to the member.
func Adopt(kind Kind, command Command, o Observation, previous string) Entry {
	entry := Entry{
		Seq: max(1, o.Seq), Command: command, Seen: o.Version, Revisions: []string{command.Revision},
		Loosened: Envelope{Pods: command.Replicas, Available: command.Replicas, Updated: command.Replicas},
	}
	if o.Pods != o.Updated || o.Remaining > 0 {
		entry.Revisions = append([]string{previous}, entry.Revisions...)
		if kind.surges() {
			entry.Loosened.Pods += min(command.Surge, command.Replicas)
		}
		entry.Loosened.Available = max(0, command.Replicas-command.Unavailable)
	}
	return entry
}
