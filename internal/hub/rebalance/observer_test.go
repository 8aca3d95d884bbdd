package rebalance

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestCountInterval(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		5 * time.Millisecond:   time.Second, // at the next observation
		100 * time.Millisecond: 20 * time.Second,
		time.Minute:            maxCountInterval,
	} {
		if got := countInterval(took); got != want {
			t.Errorf("a count that took %s is repeated after %s, want %s", took, got, want)
		}
	}
}

func TestDescribeAlarms(t *testing.T) {
	for name, test := range map[string]struct {
		alarms []*etcdserverpb.AlarmMember
		want   []string
	}{
		"none":     {},
		"disarmed": {alarms: []*etcdserverpb.AlarmMember{{Alarm: etcdserverpb.AlarmType_NONE}}},
		"two": {
			alarms: []*etcdserverpb.AlarmMember{{MemberID: 0xa, Alarm: etcdserverpb.AlarmType_NOSPACE}, {MemberID: 0xb, Alarm: etcdserverpb.AlarmType_CORRUPT}},
			want:   []string{"member a of the store has reached its quota", "data of member b of the store is corrupt"},
		},
	} {
		got := describeAlarms(test.alarms)
		if (got == "") != (len(test.want) == 0) {
			t.Errorf("%s: %q", name, got)
		}
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not contain %q", name, got, want)
			}
		}
	}
}
