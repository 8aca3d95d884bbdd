package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cellplane/cellplane/internal/controlplane"
)

// maxCellName is the longest cell name that a topology accepts.
const maxCellName = 48

// AddCell starts another cell and its engine in a running federation. The cell stays unused until the topology lists it.
// AddCell can be repeated after a failure, and does nothing if the cell exists.
func (f *Federation) AddCell(ctx context.Context, name string) error {
	f.adding.Lock()
	defer f.adding.Unlock()
	if f.cell(name) != nil {
		return nil
	}
	if f.Hub == nil {
		return fmt.Errorf("the federation in %s has no hub; cells cannot be added", f.dir)
	}
	if err := f.chooseCell(name); err != nil {
		return err
	}
	cell, err := f.newControlPlane(controlplane.Cell, name)
	if err != nil {
		return err
	}
	if err := f.startCell(ctx, cell); err != nil {
		return errors.Join(err, cell.Stop(context.WithoutCancel(ctx)))
	}
	f.mu.Lock()
	f.Cells = append(slices.Clip(f.Cells), cell)
	f.mu.Unlock()
	return f.writeKubeconfig()
}

func (f *Federation) startCell(ctx context.Context, cell *controlplane.ControlPlane) error {
	if err := startControlPlane(ctx, cell); err != nil {
		return err
	}
	if f.parts == nil {
		return nil
	}
	if err := f.parts.AddCell(ctx, cell); err != nil {
		return fmt.Errorf("preparing cell %s: %w", cell.Name(), err)
	}
	return nil
}

func (f *Federation) cell(name string) *controlplane.ControlPlane {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.Cells {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// chooseCell saves a cell and its ports, so that it is started with the federation.
func (f *Federation) chooseCell(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.state.Added, name) {
		return nil // an earlier start failed
	}
	if _, taken := f.state.Ports[name]; taken {
		return fmt.Errorf("%s is the name of another control plane of the federation", name)
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 || len(name) > maxCellName {
		return fmt.Errorf("%q cannot be the name of a cell; use lower-case letters, digits and dashes, at most %d", name, maxCellName)
	}
	ports, err := controlplane.ChoosePorts()
	if err != nil {
		return err
	}
	f.state.Ports[name] = ports
	f.state.Added = append(f.state.Added, name)
	return f.state.save(f.dir)
}
