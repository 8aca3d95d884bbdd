package membership

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cellplane/cellplane/api/names"
)

// HubEngine is used in members for the hub's own engine, in place of a cell's name.
const HubEngine = "hub"

// federationLabel names the federation of an identity: a cluster may be a member of several.
const federationLabel = "cellplane.io/federation"

// role is the task of an identity.
type role string

const (
	statusRole       role = "status"
	impersonatorRole role = "impersonator"
	registrarRole    role = "registrar"
	engineRole       role = "engine"
)

var allRoles = []role{statusRole, impersonatorRole, engineRole, registrarRole}

// identity is one of the federation's identities in a member.
type identity struct {
	cluster string
	role    role
	cell    string // of an engine
}

// account is the name of the identity's ServiceAccount in the member. It is unique: names of clusters and cells have no dots.
func (i identity) account() string {
	switch i.role {
	case statusRole:
		return "karmada-" + i.cluster
	case engineRole:
		return "karmada-" + i.cluster + "." + i.cell
	default:
		return "karmada-" + i.cluster + "-" + string(i.role)
	}
}

// secret is the name of the Secret on the hub with the identity's token.
func (i identity) secret() string { return strings.TrimPrefix(i.account(), "karmada-") }

// roleName is the name of the ClusterRole of a role, and of its binding, in the member.
func roleName(cluster string, r role) string { return "karmada-" + cluster + ":" + string(r) }

func (i identity) subject() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: names.ClusterNamespace, Name: i.account()}
}

// user is the identity's user name in the member.
func (i identity) user() string {
	return "system:serviceaccount:" + names.ClusterNamespace + ":" + i.account()
}

func engine(cluster, cell string) identity {
	return identity{cluster: cluster, role: engineRole, cell: cell}
}

// identities returns all identities of a member for the given cells. The registrar is last because it creates the others.
func identities(cluster string, cells []string) []identity {
	all := []identity{{cluster: cluster, role: statusRole}, {cluster: cluster, role: impersonatorRole}}
	for _, cell := range withHub(cells) {
		all = append(all, engine(cluster, cell))
	}
	return append(all, identity{cluster: cluster, role: registrarRole})
}

func withHub(cells []string) []string {
	all := append([]string{HubEngine}, cells...)
	slices.Sort(all)
	return slices.Compact(all)
}

// StatusUser is the name of the status identity in a member.
func StatusUser(cluster string) string { return identity{cluster: cluster, role: statusRole}.user() }

// SecretName returns the name of the Secret with a cell's credentials for a cluster, on the hub and in that cell.
func SecretName(cluster, cell string) string { return engine(cluster, cell).secret() }

// longestClusterName leaves space for derived names.
const longestClusterName = 48

// ValidateName returns an error if a cluster cannot have a name.
func ValidateName(cluster string) error {
	if problems := validation.IsDNS1123Label(cluster); len(problems) > 0 || len(cluster) > longestClusterName {
		return fmt.Errorf("a cluster cannot be called %q: its name must have at most %d lower-case letters, digits and dashes, and begin and end with a letter or digit", cluster, longestClusterName)
	}
	for _, r := range []role{impersonatorRole, registrarRole} {
		if strings.HasSuffix(cluster, "-"+string(r)) {
			return fmt.Errorf("a cluster cannot be called %q: names that end in -%s are reserved for the Secrets of other clusters", cluster, r)
		}
	}
	return nil
}

func validateCell(cell string) error {
	if problems := validation.IsDNS1123Label(cell); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a cell: %s", cell, strings.Join(problems, "; "))
	}
	return nil
}
