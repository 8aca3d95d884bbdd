package quotas

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

func listOf(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestCharge(t *testing.T) {
	for name, test := range map[string]struct {
		resource     string
		hard, used   corev1.ResourceList
		scopes       []corev1.ResourceQuotaScope
		want, refuse string
	}{
		"by alias":         {resource: "configmaps", hard: listOf("configmaps", "2"), used: listOf("configmaps", "1"), want: "configmaps=2"},
		"by count":         {resource: "deployments.apps", hard: listOf("count/deployments.apps", "2"), used: listOf("count/deployments.apps", "0"), want: "count/deployments.apps=1"},
		"another resource": {resource: "secrets", hard: listOf("configmaps", "0"), used: listOf("configmaps", "0")},
		"another group":    {resource: "services.serving.example", hard: listOf("services", "0"), used: listOf("services", "0")},
		"exceeded":         {resource: "secrets", hard: listOf("secrets", "2"), used: listOf("secrets", "2"), refuse: "exceeded quota: q, requested: secrets=1, used: secrets=2, limited: secrets=2"},
		"one of two":       {resource: "secrets", hard: listOf("secrets", "9", "count/secrets", "2"), used: listOf("secrets", "2", "count/secrets", "2"), refuse: "limited: count/secrets=2"},
		"not counted yet":  {resource: "secrets", hard: listOf("secrets", "2"), refuse: "status unknown"},
		"with a scope":     {resource: "pods", hard: listOf("pods", "0"), used: listOf("pods", "0"), scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}},
		"compute":          {resource: "pods", hard: listOf("requests.cpu", "0"), used: listOf("requests.cpu", "0")},
	} {
		t.Run(name, func(t *testing.T) {
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: test.hard, Scopes: test.scopes}}
			if test.used != nil {
				quota.Status = corev1.ResourceQuotaStatus{Hard: test.hard, Used: test.used}
			}
			got, err := charge(quota, one(schema.ParseGroupResource(test.resource)))
			if (err != nil) != (test.refuse != "") || err != nil && !strings.Contains(err.Error(), test.refuse) {
				t.Fatalf("got the error %v, want %q", err, test.refuse)
			}
			if (got != nil) != (test.want != "") {
				t.Fatalf("got %v, want %q", got, test.want)
			}
			if got == nil {
				return
			}
			key, value, _ := strings.Cut(test.want, "=")
			if used := got.Status.Used[corev1.ResourceName(key)]; used.String() != value {
				t.Errorf("used: %s, want %s", used.String(), value)
			}
		})
	}
}

func TestUncounted(t *testing.T) {
	quota := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: listOf("requests.cpu", "1", "pods", "1", "count/widgets.example.io", "1", "services.nodeports", "1", "requests.storage", "1")}}
	if got := uncounted(quota); !slices.Equal(got, []string{"requests.cpu"}) {
		t.Errorf("got %v", got)
	}
	quota.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	if got := uncounted(quota); len(got) != 5 {
		t.Errorf("with a scope: got %v", got)
	}
}

// TestServices changes a Service under a quota of what Services use.
func TestServices(t *testing.T) {
	service := func(kind corev1.ServiceType, allocate *bool, nodePorts ...int32) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, AllocateLoadBalancerNodePorts: allocate}}
		for _, port := range nodePorts {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{NodePort: port})
		}
		return s
	}
	const clusterIP, nodePort, loadBalancer = corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer
	none := service(clusterIP, nil, 0, 0)
	for name, test := range map[string]struct {
		before, after *corev1.Service
		want          usage // nil if it is refused
	}{
		"no node ports":                   {none, none, usage{}},
		"a Service becomes NodePort":      {none, service(nodePort, nil, 0, 0), usage{"services.nodeports": 3}},
		"another port":                    {service(nodePort, nil, 0), service(nodePort, nil, 0, 0), usage{"services.nodeports": 2}},
		"as many ports":                   {service(nodePort, nil, 0), service(nodePort, nil, 30000), usage{}},
		"fewer ports":                     {service(nodePort, nil, 0, 0), service(nodePort, nil, 0), usage{}},
		"too many ports":                  {none, service(nodePort, nil, 0, 0, 0), nil},
		"a load balancer":                 {none, service(loadBalancer, nil, 0), usage{"services.nodeports": 2, "services.loadbalancers": 1}},
		"too many ports of one":           {none, service(loadBalancer, ptr.To(true), 0, 0, 0), nil},
		"a load balancer without them":    {none, service(loadBalancer, ptr.To(false), 0, 0, 0, 0), usage{"services.nodeports": 1, "services.loadbalancers": 1}},
		"a load balancer with one of two": {none, service(loadBalancer, ptr.To(false), 30000, 0), usage{"services.nodeports": 2, "services.loadbalancers": 1}},
	} {
		hard := listOf("services.nodeports", "3", "services.loadbalancers", "1")
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: listOf("services.nodeports", "1", "services.loadbalancers", "0")}
		requested := usage{}
		requested.grown(partsOf(test.after), partsOf(test.before))
		got, err := charge(quota, requested)
		if (err != nil) != (test.want == nil) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for resource, n := range test.want {
			if got == nil {
				t.Errorf("%s: nothing is charged", name)
			} else if used := got.Status.Used[resource]; used.Value() != n {
				t.Errorf("%s: %s is %s, want %d", name, resource, used.String(), n)
			}
		}
		if len(test.want) == 0 && got != nil {
			t.Errorf("%s: %v is charged", name, got.Status.Used)
		}
	}
}

// TestStorage changes a claim under a quota of storage.
func TestStorage(t *testing.T) {
	claim := func(size, class string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.Resources.Requests = listOf("storage", size)
		if class != "" {
			c.Spec.StorageClassName = &class
		}
		return c
	}
	const goldSize, goldNumber = "gold.storageclass.storage.k8s.io/requests.storage", "gold.storageclass.storage.k8s.io/persistentvolumeclaims"
	older := claim("1Gi", "silver")
	older.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "gold"}
	given := claim("1Gi", "")
	given.Status.AllocatedResources = listOf("storage", "3Gi")
	for name, test := range map[string]struct {
		before, after *corev1.PersistentVolumeClaim
		want          corev1.ResourceList // nil if it is refused
	}{
		"without a class":     {nil, claim("1Gi", ""), listOf("requests.storage", "2Gi")},
		"of another class":    {nil, claim("1Gi", "silver"), listOf("requests.storage", "2Gi")},
		"of the class":        {nil, claim("1Gi", "gold"), listOf("requests.storage", "2Gi", goldSize, "1Gi", goldNumber, "1")},
		"of the class before": {nil, older, listOf("requests.storage", "2Gi", goldSize, "1Gi", goldNumber, "1")},
		"too large":           {nil, claim("5Gi", ""), nil},
		"too large for class": {nil, claim("3Gi", "gold"), nil},
		"grows":               {claim("1Gi", "gold"), claim("2Gi", "gold"), listOf("requests.storage", "2Gi", goldSize, "1Gi")},
		"grows too far":       {claim("1Gi", ""), claim("6Gi", ""), nil},
		"was given more":      {given, claim("3Gi", ""), corev1.ResourceList{}},
	} {
		hard := listOf("requests.storage", "5Gi", goldSize, "2Gi", goldNumber, "1")
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: listOf("requests.storage", "1Gi", goldSize, "0", goldNumber, "0")}
		requested, before := usage{}, usage(nil)
		if test.before != nil {
			before = storageOf(test.before)
		}
		requested.grown(storageOf(test.after), before)
		got, err := charge(quota, requested)
		if (err != nil) != (test.want == nil) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for resource, n := range test.want {
			if got == nil {
				t.Errorf("%s: nothing is charged", name)
			} else if used := got.Status.Used[resource]; used.Cmp(n) != 0 {
				t.Errorf("%s: %s is %s, want %s", name, resource, used.String(), n.String())
			}
		}
		if err == nil && len(test.want) == 0 && got != nil {
			t.Errorf("%s: %v is charged", name, got.Status.Used)
		}
	}
}
