package controlplane

import (
	"fmt"

	"github.com/cellplane/cellplane/internal/ports"
)

// Ports are the ports of a control plane, chosen once and saved.
type Ports struct {
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	EtcdHTTP          int `json:"etcdHTTP"`
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
	Kwok              int `json:"kwok"`
}

type namedPort struct {
	name   string
	number *int
}

func (p *Ports) all() []namedPort {
	return []namedPort{
		{"etcd", &p.Etcd}, {"etcd peer port", &p.EtcdPeer}, {"etcd health and metrics port", &p.EtcdHTTP},
		{"kube-apiserver", &p.APIServer}, {"kube-controller-manager", &p.ControllerManager},
		{"kube-scheduler", &p.Scheduler}, {"kwok", &p.Kwok},
	}
}

// ChoosePorts chooses and reserves free ports for a control plane.
func ChoosePorts() (Ports, error) {
	var p Ports
	for _, port := range p.all() {
		var err error
		if *port.number, err = ports.Choose(); err != nil {
			return Ports{}, err
		}
	}
	return p, nil
}

// Reserve reserves saved ports. It chooses those that an earlier version did not have.
func (p *Ports) Reserve(owner string) error {
	for _, port := range p.all() {
		if *port.number == 0 {
			var err error
			if *port.number, err = ports.Choose(); err != nil {
				return err
			}
			continue
		}
		if err := ports.Reserve(*port.number); err != nil {
			return fmt.Errorf("port %d of %s's %s is taken: %w; free it, or delete the federation with `cellplane down --purge`", *port.number, owner, port.name, err)
		}
	}
	return nil
}

// Release releases all ports.
func (p *Ports) Release() {
	for _, port := range p.all() {
		ports.Release(*port.number)
	}
}
