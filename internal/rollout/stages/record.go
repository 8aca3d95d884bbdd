package stages

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Record is what has to be remembered of an update.
type Record struct {
	// Update names the update. The record of another one does not count.
	Update string `json:"update,omitempty"`
	// Finished has the times in seconds at which all clusters of a stage were updated, for stages that are observed after that.
	Finished map[string]int64 `json:"finished,omitempty"`
	// Waiting is the stage that waits for approval.
	Waiting string `json:"waiting,omitempty"`
	// Failed are the clusters because of which the update has failed.
	Failed []string `json:"failed,omitempty"`
}

// of returns the record of an update: a copy, or a new one.
func (r Record) of(update string) Record {
	if r.Update != update {
		return Record{Update: update}
	}
	r.Finished, r.Failed, r.Waiting = maps.Clone(r.Finished), slices.Clone(r.Failed), ""
	return r
}

// finish returns when a stage was finished, now if it has just been.
func (r *Record) finish(stage string, now time.Time) time.Time {
	if at, found := r.Finished[stage]; found && at <= now.Unix() {
		return time.Unix(at, 0)
	}
	if r.Finished == nil {
		r.Finished = map[string]int64{}
	}
	r.Finished[stage] = now.Unix()
	return time.Unix(now.Unix(), 0)
}

// reopen forgets that a stage was finished.
func (r *Record) reopen(stage string) {
	if delete(r.Finished, stage); len(r.Finished) == 0 {
		r.Finished = nil
	}
}

// Encode returns the record as text for an annotation. The text is empty if there is nothing to remember.
func (r *Record) Encode() (string, error) {
	if len(r.Finished) == 0 && len(r.Failed) == 0 && r.Waiting == "" {
		return "", nil
	}
	text, err := json.Marshal(r)
	return string(text), err
}

// DecodeRecord reads what [Record.Encode] has written. Empty text is an empty record.
func DecodeRecord(text string) (Record, error) {
	var r Record
	return r, decode("stages", text, &r)
}

// Approval is what people have approved of an update.
type Approval struct {
	// Update names the update. The approval of another one does not count.
	Update string `json:"update"`
	// Stages are the stages that may begin.
	Stages []string `json:"stages,omitempty"`
	// Failures is whether the update goes on although it has failed.
	Failures bool `json:"failures,omitempty"`
}

func (a *Approval) stage(update, name string) bool {
	return a.Update == update && slices.Contains(a.Stages, name)
}

func (a *Approval) failures(update string) bool { return a.Update == update && a.Failures }

// With returns the approval with a further stage of an update, or with its failures if the stage is empty.
func (a Approval) With(update, stage string) Approval {
	if a.Update != update {
		a = Approval{Update: update}
	}
	switch {
	case stage == "":
		a.Failures = true
	case !slices.Contains(a.Stages, stage):
		a.Stages = append(slices.Clone(a.Stages), stage)
	}
	return a
}

// Encode returns the approval as text for an annotation.
func (a *Approval) Encode() (string, error) {
	text, err := json.Marshal(a)
	return string(text), err
}

// DecodeApproval reads what [Approval.Encode] has written. Empty text is no approval.
func DecodeApproval(text string) (Approval, error) {
	var a Approval
	return a, decode("approval", text, &a)
}

func decode(what, text string, into any) error {
	if text == "" {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("reading the %s of a rollout: %w", what, err)
	}
	if decoder.More() {
		return fmt.Errorf("reading the %s of a rollout: there is more after its end", what)
	}
	return nil
}
