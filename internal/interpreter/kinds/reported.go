package kinds

import (
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// reported is the status of any counted workload as members report it.
type reported struct {
	Generation                 int64 `json:"generation"`
	ResourceTemplateGeneration int64 `json:"resourceTemplateGeneration"`
	ObservedGeneration         int64 `json:"observedGeneration"`

	Replicas                int64 `json:"replicas"`
	ReadyReplicas           int64 `json:"readyReplicas"`
	UpdatedReplicas         int64 `json:"updatedReplicas"`
	AvailableReplicas       int64 `json:"availableReplicas"`
	UnavailableReplicas     int64 `json:"unavailableReplicas"`
	CurrentReplicas         int64 `json:"currentReplicas"`
	FullyLabeledReplicas    int64 `json:"fullyLabeledReplicas"`
	UpdatedReadyReplicas    int64 `json:"updatedReadyReplicas"`
	UpdatedAvailable        int64 `json:"updatedAvailableReplicas"`
	ExpectedUpdatedReplicas int64 `json:"expectedUpdatedReplicas"`
	CurrentNumberScheduled  int64 `json:"currentNumberScheduled"`
	DesiredNumberScheduled  int64 `json:"desiredNumberScheduled"`
	NumberAvailable         int64 `json:"numberAvailable"`
	NumberMisscheduled      int64 `json:"numberMisscheduled"`
	NumberReady             int64 `json:"numberReady"`
	NumberUnavailable       int64 `json:"numberUnavailable"`
	UpdatedNumberScheduled  int64 `json:"updatedNumberScheduled"`
	MatchedPods             int64 `json:"matchedPods"`
	UpdatedPods             int64 `json:"updatedPods"`
	ReadyPods               int64 `json:"readyPods"`
	UpdatedReadyPods        int64 `json:"updatedReadyPods"`

	UpdateRevision  string `json:"updateRevision"`
	CurrentRevision string `json:"currentRevision"`
	LabelSelector   string `json:"labelSelector"`
	DaemonSetHash   string `json:"daemonSetHash"`
}

func (r *reported) counter(name string) *int64 {
	switch name {
	case "generation":
		return &r.Generation
	case "resourceTemplateGeneration":
		return &r.ResourceTemplateGeneration
	case "observedGeneration":
		return &r.ObservedGeneration
	case "replicas":
		return &r.Replicas
	case "readyReplicas":
		return &r.ReadyReplicas
	case "updatedReplicas":
		return &r.UpdatedReplicas
	case "availableReplicas":
		return &r.AvailableReplicas
	case "unavailableReplicas":
		return &r.UnavailableReplicas
	case "currentReplicas":
		return &r.CurrentReplicas
	case "fullyLabeledReplicas":
		return &r.FullyLabeledReplicas
	case "updatedReadyReplicas":
		return &r.UpdatedReadyReplicas
	case "updatedAvailableReplicas":
		return &r.UpdatedAvailable
	case "expectedUpdatedReplicas":
		return &r.ExpectedUpdatedReplicas
	case "currentNumberScheduled":
		return &r.CurrentNumberScheduled
	case "desiredNumberScheduled":
		return &r.DesiredNumberScheduled
	case "numberAvailable":
		return &r.NumberAvailable
	case "numberMisscheduled":
		return &r.NumberMisscheduled
	case "numberReady":
		return &r.NumberReady
	case "numberUnavailable":
		return &r.NumberUnavailable
	case "updatedNumberScheduled":
		return &r.UpdatedNumberScheduled
	case "matchedPods":
		return &r.MatchedPods
	case "updatedPods":
		return &r.UpdatedPods
	case "readyPods":
		return &r.ReadyPods
	case "updatedReadyPods":
		return &r.UpdatedReadyPods
	}
	return nil
}

func (r *reported) text(name string) *string {
	switch name {
	case "updateRevision":
		return &r.UpdateRevision
	case "currentRevision":
		return &r.CurrentRevision
	case "labelSelector":
		return &r.LabelSelector
	case "daemonSetHash":
		return &r.DaemonSetHash
	}
	return nil
}

// decode reads what a member reports. It returns false if there is nothing.
func (r *reported) decode(item *workv1alpha2.AggregatedStatusItem) (bool, error) {
	if item.Status != nil && r.scan(item.Status.Raw) {
		return true, nil
	}
	*r = reported{}
	return Decode(item, r)
}

// scan reads the plain form in which Counted itself writes statuses: an object of known integers and texts without
// escapes. It returns false on anything else, which is then for the general decoder.
func (r *reported) scan(raw []byte) bool {
	s := scanner{rest: raw}
	if !s.next('{') {
		return false
	}
	if s.next('}') {
		return s.end()
	}
	for {
		name, ok := s.text()
		if !ok || !s.next(':') {
			return false
		}
		if number := r.counter(string(name)); number != nil {
			*number, ok = s.integer()
		} else if text := r.text(string(name)); text != nil {
			var value []byte
			value, ok = s.text()
			*text = string(value)
		} else {
			return false
		}
		if !ok {
			return false
		}
		if s.next('}') {
			return s.end()
		}
		if !s.next(',') {
			return false
		}
	}
}

type scanner struct{ rest []byte }

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\t' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
}

func (s *scanner) next(c byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) end() bool {
	s.space()
	return len(s.rest) == 0
}

// text reads a string of printable ASCII without escapes.
func (s *scanner) text() ([]byte, bool) {
	if !s.next('"') {
		return nil, false
	}
	for i, c := range s.rest {
		if c == '"' {
			text := s.rest[:i]
			s.rest = s.rest[i+1:]
			return text, true
		}
		if c < 0x20 || c >= 0x7f || c == '\\' {
			return nil, false
		}
	}
	return nil, false
}

// integer reads an integer of at most 18 digits.
func (s *scanner) integer() (int64, bool) {
	negative := s.next('-')
	if !negative {
		s.space()
	}
	value, digits := int64(0), 0
	for digits < len(s.rest) && s.rest[digits] >= '0' && s.rest[digits] <= '9' {
		value = value*10 + int64(s.rest[digits]-'0')
		if digits++; digits > 18 {
			return 0, false
		}
	}
	if digits == 0 || digits > 1 && s.rest[0] == '0' {
		return 0, false
	}
	if s.rest = s.rest[digits:]; len(s.rest) > 0 && (s.rest[0] == '.' || s.rest[0]|0x20 == 'e') {
		return 0, false
	}
	if negative {
		value = -value
	}
	return value, true
}
