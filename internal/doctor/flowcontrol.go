package doctor

import (
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
)

// rejectedWithin is the time between two looks at how many requests were rejected.
const rejectedWithin = time.Second

// checkFlowControl looks for priority levels of API servers in which requests wait, or are rejected right now.
func (d *Doctor) checkFlowControl(ctx context.Context) ([]Finding, error) {
	before, err := d.levels(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(rejectedWithin):
	}
	after, err := d.levels(ctx)
	if err != nil {
		return nil, err
	}
	return saturated(before, after), nil
}

// level are the requests of a priority level of a control plane.
type level struct{ waiting, rejected int }

func saturated(before, after map[string]level) []Finding {
	var findings []Finding
	for _, name := range slices.Sorted(maps.Keys(after)) {
		now := after[name]
		if rejected := now.rejected - before[name].rejected; rejected > 0 {
			findings = append(findings, find(FlowControlSaturated, Error, name, fmt.Sprintf("%d requests were rejected within %s", rejected, rejectedWithin)))
		} else if now.waiting > 0 && before[name].waiting > 0 {
			findings = append(findings, find(FlowControlSaturated, Warning, name, fmt.Sprintf("%d requests wait", now.waiting)))
		}
	}
	return findings
}

func (d *Doctor) levels(ctx context.Context) (map[string]level, error) {
	all := map[string]level{}
	for _, p := range d.planes {
		client, err := discovery.NewDiscoveryClientForConfig(p.config)
		if err != nil {
			return nil, err
		}
		text, err := client.RESTClient().Get().AbsPath("/debug/api_priority_and_fairness/dump_priority_levels").Do(ctx).Raw()
		if err != nil {
			return nil, fmt.Errorf("reading the priority levels of %s: %w", p.name, err)
		}
		found, err := parseLevels(string(text))
		if err != nil {
			return nil, fmt.Errorf("reading the priority levels of %s: %w", p.name, err)
		}
		for name, l := range found {
			all["priority level "+name+" of "+p.name] = l
		}
	}
	return all, nil
}

// parseLevels reads the table of an API server. It finds columns by their headings.
func parseLevels(text string) (map[string]level, error) {
	reader := csv.NewReader(strings.NewReader(text))
	reader.TrimLeadingSpace, reader.FieldsPerRecord = true, -1
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("there are none")
	}
	name, waiting, rejected := slices.Index(rows[0], "PriorityLevelName"), slices.Index(rows[0], "WaitingRequests"), slices.Index(rows[0], "RejectedRequests")
	if name < 0 || waiting < 0 || rejected < 0 {
		return nil, fmt.Errorf("unknown columns %q", rows[0])
	}
	all := map[string]level{}
	for _, row := range rows[1:] {
		if len(row) <= max(name, waiting, rejected) {
			continue
		}
		var l level
		var errs [2]error
		l.waiting, errs[0] = strconv.Atoi(row[waiting])
		l.rejected, errs[1] = strconv.Atoi(row[rejected])
		if errs[0] == nil && errs[1] == nil { // an exempt level has no queues, and "<none>" in some columns
			all[row[name]] = l
		}
	}
	return all, nil
}
