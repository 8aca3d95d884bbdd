package rollout

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func value(text string) *intstr.IntOrString {
	if text == "" {
		return nil
	}
	v := intstr.Parse(text)
	return &v
}

// TestBounds resolves bounds as the controllers of the kinds do.
func TestBounds(t *testing.T) {
	for _, test := range []struct {
		kind                          Kind
		replicas                      int
		surge, unavailable, partition string
		want                          Bounds
	}{
		{Deployment, 10, "", "", "", Bounds{10, 3, 2, 0}},
		{Deployment, 15, "25%", "25%", "", Bounds{15, 4, 3, 0}},
		{Deployment, 3, "0", "25%", "", Bounds{3, 0, 1, 0}},
		{Deployment, 3, "0%", "0%", "", Bounds{3, 0, 1, 0}},
		{Deployment, 1, "1", "0", "", Bounds{1, 1, 0, 0}},
		{Deployment, 2, "100%", "5", "", Bounds{2, 2, 2, 0}},
		{Deployment, 0, "", "", "", Bounds{0, 0, 0, 0}},
		{StatefulSet, 5, "", "", "0", Bounds{5, 0, 1, 0}},
		{StatefulSet, 5, "", "10%", "2", Bounds{5, 0, 1, 2}},
		{StatefulSet, 5, "", "50%", "9", Bounds{5, 0, 2, 5}},
		{CloneSet, 10, "", "", "", Bounds{10, 0, 2, 0}},
		{CloneSet, 3, "", "", "", Bounds{3, 0, 1, 0}},
		{CloneSet, 3, "1", "20%", "", Bounds{3, 1, 0, 0}},
		{CloneSet, 9, "20%", "20%", "50%", Bounds{9, 2, 1, 5}},
		{CloneSet, 9, "", "", "99%", Bounds{9, 0, 2, 8}},
		{CloneSet, 1, "", "", "50%", Bounds{1, 0, 1, 0}},
		{CloneSet, 9, "", "", "100%", Bounds{9, 0, 2, 9}},
		{CloneSet, 9, "", "", "20", Bounds{9, 0, 2, 9}},
		{CloneSet, 9, "0", "0", "", Bounds{9, 0, 1, 0}},
	} {
		var got Bounds
		var err error
		switch test.kind {
		case Deployment:
			got, err = DeploymentBounds(test.replicas, value(test.surge), value(test.unavailable))
		case StatefulSet:
			got, err = StatefulSetBounds(test.replicas, value(test.unavailable), value(test.partition).IntValue())
		default:
			got, err = CloneSetBounds(test.replicas, value(test.surge), value(test.unavailable), value(test.partition))
		}
		if err != nil || got != test.want {
			t.Errorf("%+v: %+v, %v", test, got, err)
		}
	}
}

// TestBoundsErrors checks what is said about bad values.
func TestBoundsErrors(t *testing.T) {
	_, surge := DeploymentBounds(3, value("many"), nil)
	_, unavailable := DeploymentBounds(3, nil, value("-1"))
	_, replicas := CloneSetBounds(-1, nil, nil, nil)
	_, partition := StatefulSetBounds(3, nil, -2)
	_, kept := CloneSetBounds(3, nil, nil, value("x%"))
	for want, err := range map[string]error{
		`maxSurge is "many"; it must be a number or a percentage`: surge,
		"maxUnavailable is -1; it cannot be negative":             unavailable,
		"replicas is -1; it cannot be negative":                   replicas,
		"partition is -2; it cannot be negative":                  partition,
		`partition is "x%"; it must be`:                           kept,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
