package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cellplane/cellplane/internal/process"
)

const (
	engineAccount = "cellplane-engine"
	engineUser    = "system:cellplane:engine"
	pollPeriod    = 20 * time.Millisecond
	engineBound   = 5 * time.Minute // a cell with many workloads takes long to read
)

// engine is one process of the engine.
type engine struct {
	*process.Process
	metricsURL string
}

// engines are two engines of the cell, of which one leads.
type engines struct{ all []*engine }

// newEngines prepares the engines; nothing runs yet.
func newEngines(f *federation, program string) (*engines, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	if err := makeAdmin(ctx, f.cell.client, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: engineUser}); err != nil {
		return nil, fmt.Errorf("giving the engine its rights: %w", err)
	}
	kubeconfig, err := f.cell.KubeconfigFor("engine", engineUser)
	if err != nil {
		return nil, err
	}
	e := &engines{}
	for _, name := range []string{"engine-1", "engine-2"} {
		address, err := f.planes.Address(f.cell.Name() + "/" + name)
		if err != nil {
			return nil, err
		}
		url := "http://" + address
		e.all = append(e.all, &engine{metricsURL: url + "/metrics", Process: process.New(process.Spec{
			Name:    f.cell.Name() + "/" + name,
			Path:    program,
			Args:    []string{"engine", "--cell=" + f.cell.Name(), "--kubeconfig=" + kubeconfig, "--leader-elect", "--metrics-address=" + address},
			LogFile: filepath.Join(f.planes.Dir(), f.cell.Name(), "logs", name+".log"),
			Check:   process.HTTPCheck(url+"/readyz", "", "", ""),
		})})
	}
	return e, nil
}

// start runs both engines and returns when they are ready and one leads.
func (e *engines) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, engineBound)
	defer cancel()
	for _, one := range e.all {
		if err := one.Start(ctx); err != nil {
			return err
		}
	}
	for _, one := range e.all {
		if err := one.WaitReady(ctx); err != nil {
			return err
		}
	}
	_, _, err := e.roles(ctx)
	return err
}

// stop ends both engines gracefully.
func (e *engines) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	var errs []error
	for _, one := range e.all {
		errs = append(errs, one.Stop(ctx))
	}
	return errors.Join(errs...)
}

// halt ends an engine gracefully.
func (e *engine) halt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopBound)
	defer cancel()
	return e.Stop(ctx)
}

// roles returns the engine that leads, as soon as one does, and the other one.
func (e *engines) roles(ctx context.Context) (active, standby *engine, err error) {
	err = wait.PollUntilContextTimeout(ctx, pollPeriod, engineBound, true, func(ctx context.Context) (bool, error) {
		for i, one := range e.all {
			if one.leads(ctx) {
				active, standby = one, e.all[1-i]
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("waiting for an engine that leads: %w", err)
	}
	return active, standby, nil
}

// back waits until a killed engine has been restarted and is ready.
func (e *engine) back(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, pollPeriod, engineBound, false, func(ctx context.Context) (bool, error) {
		return e.Check(ctx) == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be ready again: %w", e.Name(), err)
	}
	return nil
}

// leads asks the engine itself; one that does not answer does not lead.
func (e *engine) leads(ctx context.Context) bool {
	metrics, err := get(ctx, http.DefaultClient, e.metricsURL)
	return err == nil && sum(metrics, "cellplane_engine_leading") == 1
}

// get fetches a URL.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}
