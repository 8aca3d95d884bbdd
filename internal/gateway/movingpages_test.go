package gateway_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
)

// movingPages is a list of Deployments in pages. All pages have to show the state of the first one, whatever happens to the topology, and each
// has to say how many objects remain.
type movingPages struct {
	t           *testing.T
	deployments appsclient.DeploymentInterface
	want        map[string]string
	page        *appsv1.DeploymentList
	found       int
}

// startPages reads the first page.
func (f *movingFixture) startPages() *movingPages {
	f.t.Helper()
	p := &movingPages{t: f.t, deployments: f.through(currentGateway), want: f.list(currentGateway)}
	p.read(metav1.ListOptions{Limit: 2})
	return p
}

// finish reads the other pages.
func (p *movingPages) finish() {
	p.t.Helper()
	for version := p.page.ResourceVersion; p.page.Continue != ""; {
		p.read(metav1.ListOptions{Limit: 3, Continue: p.page.Continue})
		if p.page.ResourceVersion != version {
			p.t.Errorf("a page has version %s, the first one %s", p.page.ResourceVersion, version)
		}
	}
	if p.found != len(p.want) {
		p.t.Errorf("the pages have %d objects, want %d", p.found, len(p.want))
	}
}

func (p *movingPages) read(options metav1.ListOptions) {
	p.t.Helper()
	var err error
	p.page, err = p.deployments.List(p.t.Context(), options)
	must(p.t, err)
	for i := range p.page.Items {
		item := &p.page.Items[i]
		if got := string(item.UID) + " " + item.Annotations["value"]; got != p.want[item.Name] {
			p.t.Errorf("%s is %s, want %q", item.Name, got, p.want[item.Name])
		}
	}
	p.found += len(p.page.Items)
	if remaining := p.page.RemainingItemCount; p.page.Continue != "" && (remaining == nil || p.found+int(*remaining) != len(p.want)) {
		p.t.Errorf("%v objects remain after %d of %d", remaining, p.found, len(p.want))
	}
}
