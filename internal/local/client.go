package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Client calls the supervisor of a federation.
type Client struct {
	dir  string
	http *http.Client
}

// NewClient returns a client for the federation in dir. The federation need not be running.
func NewClient(dir string) (*Client, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	path, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{dir: dir, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}, nil
}

// Report returns the phase of the federation.
func (c *Client) Report(ctx context.Context) (Report, error) { return c.report(ctx, "/report") }

// ReportWithProcesses also returns the health and resource usage of all processes.
func (c *Client) ReportWithProcesses(ctx context.Context) (Report, error) {
	return c.report(ctx, "/report?processes")
}

func (c *Client) report(ctx context.Context, path string) (Report, error) {
	var report Report
	body, err := c.do(ctx, http.MethodGet, path)
	if err != nil {
		return report, err
	}
	return report, json.Unmarshal(body, &report)
}

// Stop stops the federation and waits until all processes have ended.
func (c *Client) Stop(ctx context.Context) error {
	if _, err := c.do(ctx, http.MethodPost, "/stop"); err != nil && InUse(c.dir) {
		return err
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for InUse(c.dir) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the federation to stop: %w", ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

// Signal applies an action to a process: kill, pause, resume, restart, halt or resurrect.
func (c *Client) Signal(ctx context.Context, process, action string) error {
	query := url.Values{"process": {process}, "action": {action}}
	_, err := c.do(ctx, http.MethodPost, "/signal?"+query.Encode())
	return err
}

// SignalAll applies an action to all processes whose names begin with a prefix, such as "cell-a/".
func (c *Client) SignalAll(ctx context.Context, prefix, action string) error {
	report, err := c.ReportWithProcesses(ctx)
	if err != nil {
		return err
	}
	for _, p := range report.Processes {
		if !strings.HasPrefix(p.Name, prefix) {
			continue
		}
		if err := c.Signal(ctx, p.Name, action); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// AddCell starts another cell and waits until it is ready.
func (c *Client) AddCell(ctx context.Context, name string) error {
	_, err := c.do(ctx, http.MethodPost, "/cells?"+url.Values{"name": {name}}.Encode())
	return err
}

func (c *Client) do(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("calling the supervisor: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("calling the supervisor: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the supervisor refused: %s", strings.TrimSpace(string(body)))
	}
	return body, nil
}

// socketPath returns the socket of the supervisor of a directory. The kernel limits the length of socket paths; longer ones
// are replaced by a hash.
func socketPath(dir string) (string, error) {
	const longest = 100
	if path := filepath.Join(dir, "supervisor.sock"); len(path) <= longest {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	private := filepath.Join(cache, "cellplane", "sockets")
	if err := os.MkdirAll(private, 0o700); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(private, hex.EncodeToString(sum[:8])), nil
}
