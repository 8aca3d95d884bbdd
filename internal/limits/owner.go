package limits

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Owner is the one whose requests are counted together.
type Owner struct {
	// Name is the user, or the group of the service accounts of a namespace.
	Name string
	// Exempt is set for those who are never refused or delayed.
	Exempt bool
}

const (
	// components is the prefix of the users of Cellplane's own components. User names that begin with system: are reserved.
	components = "system:cellplane:"
	// controllers is the user of the stock controllers, and controllersNamespace that of their service accounts.
	controllers          = user.KubeControllerManager
	controllersNamespace = "kube-system"
)

// OwnerOf returns the owner of a user's requests.
func OwnerOf(u user.Info) Owner {
	if u == nil {
		return Owner{}
	}
	name := u.GetName()
	owner := Owner{
		Name:   name,
		Exempt: strings.HasPrefix(name, components) || name == controllers || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup),
	}
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		owner.Name = serviceaccount.MakeNamespaceGroupName(namespace)
		owner.Exempt = owner.Exempt || namespace == controllersNamespace
	}
	return owner
}

// OwnerFrom returns the owner of the request of a context. With impersonation that is the user who is impersonated, as in flow control.
func OwnerFrom(ctx context.Context) Owner {
	u, _ := request.UserFrom(ctx)
	return OwnerOf(u)
}
