package clusterstatus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
)

// member is the connection to a member cluster.
type member struct {
	connection *fleet.MemberConnection
	options    Options
	client     kubernetes.Interface
	apis       *apis
	ledger     *ledger // nil if resources are not collected
	name       string
	uid        types.UID
}

// openMember prepares clients. The function is called when the status should be collected at once.
func openMember(name string, uid types.UID, connection *fleet.MemberConnection, options Options, news func()) (*member, error) {
	config := rest.AddUserAgent(connection.Config(), "cluster-status")
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	apis, err := newAPIs(rest.AddUserAgent(connection.Config(), "cluster-status"), options.ProbeTimeout)
	if err != nil {
		return nil, err
	}
	m := &member{name: name, uid: uid, connection: connection, options: options, client: client, apis: apis}
	if !options.WithoutResources {
		m.ledger = newLedger(news)
	}
	return m, nil
}

// watch watches nodes and pods until the context ends.
func (m *member) watch(ctx context.Context) {
	if m.ledger == nil {
		return
	}
	if models := m.options.Models; models != nil {
		m.ledger.model = models.Open(m.name, m.uid)
		defer models.Close(m.name, m.ledger.model)
	}
	m.ledger.follow(ctx, m.client)
}

// probe checks whether the member is ready.
func (m *member) probe(ctx context.Context) metav1.Condition {
	ctx, cancel := context.WithTimeout(ctx, m.options.ProbeTimeout)
	defer cancel()
	code, err := m.health(ctx, "/readyz")
	if code == http.StatusNotFound {
		code, err = m.health(ctx, "/healthz") // before Kubernetes 1.16
	}
	switch {
	case code == http.StatusOK:
		return condition(metav1.ConditionTrue, reasonReady, "The cluster answers and says that it is ready.")
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return condition(metav1.ConditionFalse, reasonNotReady, "The cluster answers but refuses the credentials in the Secret that spec.secretRef names.")
	case code != 0:
		return condition(metav1.ConditionFalse, reasonNotReady, fmt.Sprintf("The cluster answers but says that it is not ready (HTTP status %d).", code))
	case ctx.Err() != nil:
		return condition(metav1.ConditionFalse, reasonNotReachable, fmt.Sprintf("The cluster did not answer within %s.", m.options.ProbeTimeout))
	default:
		return condition(metav1.ConditionFalse, reasonNotReachable, "The cluster cannot be reached: "+steady(err))
	}
}

func (m *member) health(ctx context.Context, path string) (code int, err error) {
	err = m.client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).StatusCode(&code).Error()
	return code, err
}

// steady returns the text of an error without parts that differ each time, so that the status does not change each time.
func steady(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return fmt.Sprintf("%s: %v", operation.Op, operation.Err)
	}
	return err.Error()
}

// find collects everything else from a ready member.
func (m *member) find(ctx context.Context) findings {
	var found findings
	version, err := m.apis.discovery.ServerVersion()
	if err != nil {
		klog.FromContext(ctx).Error(err, "reading the version of a cluster failed")
	} else {
		found.version = version.GitVersion
	}
	found.apis, found.complete = m.apis.refresh(ctx)
	if m.ledger != nil && m.ledger.synced() {
		found.summarize = m.ledger.summarize
	}
	return found
}
