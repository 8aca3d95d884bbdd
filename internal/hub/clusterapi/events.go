package clusterapi

import (
	"context"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/hub/eventnote"
)

// Reasons of events on the Clusters of Cluster API.
const (
	reasonJoined     = "JoinedFederation"
	reasonJoinFailed = "JoinFederationFailed"
)

// component is the source of the events.
const component = "cellplane-hub-manager"

// recorder writes events into the management cluster, each once. They are optional: a lack of rights is no error.
type recorder struct {
	client kubernetes.Interface
	mu     sync.Mutex
	last   map[types.UID]string
}

func (r *recorder) record(ctx context.Context, key types.NamespacedName, about *machine, reason, message string) {
	if !r.isNew(about.uid, reason+" "+message) {
		return
	}
	severity := corev1.EventTypeNormal
	if reason == reasonJoinFailed {
		severity = corev1.EventTypeWarning
	}
	now := time.Now()
	_, err := r.client.CoreV1().Events(key.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "." + strconv.FormatInt(now.UnixNano(), 16)},
		InvolvedObject: corev1.ObjectReference{APIVersion: about.apiVersion, Kind: kind, Namespace: key.Namespace, Name: key.Name, UID: about.uid},
		Type:           severity, Reason: reason, Message: eventnote.Cut(message), Count: 1,
		Source:         corev1.EventSource{Component: component},
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), ReportingController: component,
	}, metav1.CreateOptions{})
	if err != nil {
		klog.FromContext(ctx).V(1).Info("writing an event into the management cluster failed", "cluster", key, "reason", reason, "err", err)
	}
}

func (r *recorder) isNew(about types.UID, what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[types.UID]string{}
	}
	if r.last[about] == what {
		return false
	}
	r.last[about] = what
	return true
}
