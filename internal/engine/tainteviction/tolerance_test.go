package tainteviction

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

func TestLeave(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	noExecute := func(key, value string, ago time.Duration) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: now.Add(-ago)}}
	}
	bears := func(key string, seconds *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, TolerationSeconds: seconds}
	}
	for _, test := range []struct {
		name        string
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		taint       string
		after       time.Duration
	}{
		{"no taint", nil, nil, "", forever},
		{"another effect", []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}, nil, "", forever},
		{"not tolerated", []corev1.Taint{noExecute("a", "", time.Minute)}, nil, "a", -time.Minute},
		{"tolerated forever", []corev1.Taint{noExecute("a", "", time.Minute)}, []corev1.Toleration{bears("a", nil)}, "", forever},
		{"tolerated for a while", []corev1.Taint{noExecute("a", "", time.Minute)}, []corev1.Toleration{bears("a", ptr.To[int64](90))}, "a", 30 * time.Second},
		{"negative toleration", []corev1.Taint{noExecute("a", "", 0)}, []corev1.Toleration{bears("a", ptr.To[int64](-5))}, "a", 0},
		{"shortest of two tolerations", []corev1.Taint{noExecute("a", "", 0)}, []corev1.Toleration{bears("a", ptr.To[int64](90)), bears("", ptr.To[int64](30)), bears("a", nil)}, "a", 30 * time.Second},
		{"first of two taints", []corev1.Taint{noExecute("a", "", 0), noExecute("b", "", 0)}, []corev1.Toleration{bears("a", ptr.To[int64](90)), bears("b", ptr.To[int64](30))}, "b", 30 * time.Second},
		{"same value", []corev1.Taint{noExecute("a", "x", 0)}, []corev1.Toleration{{Key: "a", Value: "x"}}, "", forever},
		{"another value", []corev1.Taint{noExecute("a", "x", 0)}, []corev1.Toleration{{Key: "a", Value: "y"}}, "a", 0},
		{"numeric operator", []corev1.Taint{noExecute("a", "5", 0)}, []corev1.Toleration{{Key: "a", Operator: "Gt", Value: "3"}}, "a", 0},
		{"toleration of another effect", []corev1.Taint{noExecute("a", "", 0)}, []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, "a", 0},
		{"taint without a time", []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}, []corev1.Toleration{bears("a", ptr.To[int64](90))}, "a", 80 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := &clusterv1alpha1.Cluster{Spec: clusterv1alpha1.ClusterSpec{Taints: test.taints}}
			taint, after := leave(cluster, test.tolerations, func(*corev1.Taint) time.Time { return now.Add(-10 * time.Second) }, now)
			got := ""
			if taint != nil {
				got = taint.Key
			}
			if got != test.taint || after != test.after {
				t.Errorf("leave() = %q after %v, want %q after %v", got, after, test.taint, test.after)
			}
		})
	}
}
