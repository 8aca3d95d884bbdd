package execution

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// The first line, which bindings show, has no values. What differs counts for more than what is not known.
func TestSummarize(t *testing.T) {
	object := cell.Object{GroupVersionKind: configMaps, Key: cell.Key{Namespace: "ns", Name: "cm"}}
	change := finding{object: object, differences: []difference.Difference{{Field: "data.k", From: "a", To: "b"}}}
	refused := finding{object: object, instead: "would be refused by the cluster (Invalid)", detail: `data.k: Invalid value: "b"`}
	unknown := finding{object: object, unknown: errors.New("no answer")}
	for _, tt := range []struct {
		name     string
		findings []finding
		status   metav1.ConditionStatus
		message  string
	}{
		{"nothing", []finding{{object: object}}, metav1.ConditionFalse, "The federation would change nothing in the member cluster"},
		{"a change", []finding{change}, metav1.ConditionTrue, "ConfigMap ns/cm would change: data.k\n" + `data.k: "a" -> "b"`},
		{"a refusal", []finding{refused}, metav1.ConditionTrue, "ConfigMap ns/cm would be refused by the cluster (Invalid)\n" + refused.detail},
		{"not known", []finding{{object: object}, unknown}, metav1.ConditionUnknown, "ConfigMap ns/cm could not be compared: no answer"},
		{"a change, and not known", []finding{unknown, change}, metav1.ConditionTrue, "ConfigMap ns/cm could not be compared: no answer; ConfigMap ns/cm would change: data.k\n" + `data.k: "a" -> "b"`},
	} {
		got := summarize(tt.findings)
		if got.Status != tt.status || got.Message != tt.message {
			t.Errorf("%s: %s with %q, want %s with %q", tt.name, got.Status, got.Message, tt.status, tt.message)
		}
		if strings.Contains(got.FirstLine(), `"`) {
			t.Errorf("%s: the first line has values: %s", tt.name, got.FirstLine())
		}
	}
}

// A webhook that allows no dry runs says nothing about the write.
func TestMayNotRehearse(t *testing.T) {
	webhook := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: `admission webhook "w" does not support dry run`}}
	if !mayNotRehearse(webhook) {
		t.Error("it is taken for a refusal")
	}
	for _, err := range []error{apierrors.NewBadRequest("a field is unknown"), apierrors.NewInvalid(schema.GroupKind{}, "x", nil)} {
		if mayNotRehearse(err) {
			t.Errorf("%v is taken for a missing dry run", err)
		}
	}
}
