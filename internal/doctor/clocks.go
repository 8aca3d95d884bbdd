package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
)

// The differences from which on clocks are told of. A Date header has seconds, so two are within its precision.
const (
	skewWarning = 3 * time.Second
	skewError   = 15 * time.Second
)

// checkClocks compares the clocks of all API servers with that of the hub.
func (d *Doctor) checkClocks(ctx context.Context) ([]Finding, error) {
	ahead := map[string]time.Duration{} // of this machine
	for _, p := range d.planes {
		var err error
		if ahead[p.name], err = clockOf(ctx, p.config); err != nil {
			return nil, fmt.Errorf("reading the clock of %s: %w", p.name, err)
		}
	}
	return clocks(ahead), nil
}

func clocks(ahead map[string]time.Duration) []Finding {
	var findings []Finding
	for name, by := range ahead {
		difference := (by - ahead["hub"]).Round(time.Second)
		if difference.Abs() < skewWarning {
			continue
		}
		severity := Warning
		if difference.Abs() >= skewError {
			severity = Error
		}
		findings = append(findings, find(ClockSkew, severity, "API server of "+name, fmt.Sprintf("its clock differs by %s from that of the hub", difference)))
	}
	if difference := ahead["hub"].Round(time.Second); difference.Abs() >= skewWarning {
		findings = append(findings, find(ClockSkew, Warning, "this machine", fmt.Sprintf("its clock differs by %s from that of the hub; other checks may be wrong", -difference)))
	}
	return findings
}

// clockOf returns how much the clock of a server is ahead of that of this machine, by the middle of a request.
func clockOf(ctx context.Context, config *rest.Config) (time.Duration, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	address, err := url.JoinPath(config.Host, "version")
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	middle := began.Add(time.Since(began) / 2)
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0, err
	}
	return date.Add(500 * time.Millisecond).Sub(middle), nil // the header is cut to seconds
}
