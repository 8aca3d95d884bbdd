package execution

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTally(t *testing.T) {
	describe := func(name string) *prometheus.Desc { return prometheus.NewDesc(name, "Test.", groupLabels, nil) }
	objects := newTally(tallied{describe("count"), count}, tallied{describe("earliest"), earliest}, tallied{describe("sum"), sum})
	expect := func(want string) {
		t.Helper()
		if err := testutil.CollectAndCompare(objects, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	web, other := group{"m1", "Deployment", "shop"}, group{"m2", "Deployment", "shop"}
	objects.set(web, "a", 0)
	objects.set(web, "b", 7)
	objects.set(web, "c", 5)
	objects.set(web, "c", 6)
	objects.set(other, "a", 0)
	expect(`
# HELP count Test.
# TYPE count gauge
count{kind="Deployment",member_cluster="m1",namespace="shop"} 3
count{kind="Deployment",member_cluster="m2",namespace="shop"} 1
# HELP earliest Test.
# TYPE earliest gauge
earliest{kind="Deployment",member_cluster="m1",namespace="shop"} 6
earliest{kind="Deployment",member_cluster="m2",namespace="shop"} 0
# HELP sum Test.
# TYPE sum gauge
sum{kind="Deployment",member_cluster="m1",namespace="shop"} 13
sum{kind="Deployment",member_cluster="m2",namespace="shop"} 0
`)
	objects.remove(web, "c")
	objects.remove(web, "c")
	objects.remove(other, "a")
	expect(`
# HELP count Test.
# TYPE count gauge
count{kind="Deployment",member_cluster="m1",namespace="shop"} 2
# HELP earliest Test.
# TYPE earliest gauge
earliest{kind="Deployment",member_cluster="m1",namespace="shop"} 7
# HELP sum Test.
# TYPE sum gauge
sum{kind="Deployment",member_cluster="m1",namespace="shop"} 7
`)
}
